"""Downloads the jars of the lock file into the cache, and checks each by its sha256.

Several resolver processes (Ivy, which comes with PySpark) each download a share into a folder of their own. A
jar moves into the cache with one rename after its checksum was verified, so two Batons may download at the
same time. Used by `baton jars`, `baton up` and the tests.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO
from xml.sax.saxutils import quoteattr

from rich.progress import DownloadColumn, TransferSpeedColumn

from cli.stack.faults import JarsUnavailable
from cli.stack.jars.java import find_java, the_jar
from cli.stack.jars.lock import Jar, Use, jar_folder, read_lock
from cli.stack.processes.leash import on_leash
from cli.terminal.escaping import echo
from cli.terminal.output import progress_bar

SHARES = 6
"""Parallel resolvers, more than there are cores: they mostly wait for the network."""
FETCH_TIMEOUT_S = 900.0
STALL_TIMEOUT_S = 180.0
"""The download fails after this time without a single byte."""
POLL_S = 0.1

Resolver = Callable[[Sequence[Jar], Path, IO[bytes]], "subprocess.Popen[bytes]"]
"""Starts the download of some jars into `folder/libs`, with messages to the given file."""


def sha256_of(path: Path) -> str:
    """The checksum of a file in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_sound(jar: Jar, folder: Path) -> bool:
    """Whether the folder holds the jar with the right checksum."""
    path = folder / jar.file
    try:
        return sha256_of(path) == jar.sha256
    except OSError:
        return False


def ivy_module(jars: Sequence[Jar], name: str) -> str:
    """An `ivy.xml` that names the jars without their dependencies."""
    lines = [
        f"<dependency org={quoteattr(jar.group)} name={quoteattr(jar.artifact)}"
        f' rev={quoteattr(jar.version)} transitive="false" conf="default-&gt;default"/>'
        for jar in jars
    ]
    return (
        f'<ivy-module version="2.0"><info organisation="baton" module={quoteattr(name)}/>'
        f'<configurations><conf name="default"/></configurations>'
        f"<dependencies>{''.join(lines)}</dependencies></ivy-module>"
    )


def share_out(jars: Sequence[Jar], shares: int) -> list[list[Jar]]:
    """The jars in at most `shares` lists of about the same size in bytes, none empty."""
    lists: list[list[Jar]] = [[] for _ in range(min(shares, len(jars)))]
    weights = [0] * len(lists)
    for jar in sorted(jars, key=lambda jar: (-jar.size_bytes, jar.file)):
        lightest = weights.index(min(weights))
        lists[lightest].append(jar)
        # besides its bytes a jar costs some requests, about as much as half a megabyte
        weights[lightest] += jar.size_bytes + 500_000
    return lists


def resolve_with_ivy(jars: Sequence[Jar], folder: Path, messages: IO[bytes]) -> subprocess.Popen[bytes]:
    """A running Ivy process that downloads the jars. Raises JavaMissing."""
    (folder / "ivy.xml").write_text(ivy_module(jars, folder.name))
    argv = [
        # a short-lived JVM: compiling less starts faster
        *(find_java(), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-jar", str(the_jar("ivy"))),
        *("-ivy", str(folder / "ivy.xml"), "-cache", str(folder / "cache"), "-confs", "default"),
        *("-types", "jar", "bundle", "-warn"),
        *("-retrieve", f"{folder}/libs/[artifact]-[revision].[ext]"),
    ]
    return subprocess.Popen(
        on_leash(argv), stdin=subprocess.DEVNULL, stdout=messages, stderr=subprocess.STDOUT
    )


def fetch_jars(
    use: Use,
    *,
    folder: Path | None = None,
    jars: Sequence[Jar] | None = None,
    resolver: Resolver = resolve_with_ivy,
    quiet: bool = False,
) -> list[Jar]:
    """Ensures that the cache holds exactly the jars of one use; returns those that it had to download.

    It downloads only what is missing or damaged. Raises JarsUnavailable, which names those jars, and
    JavaMissing.
    """
    locked = read_lock(use) if jars is None else list(jars)
    home = jar_folder(use) if folder is None else folder
    absent = [jar for jar in locked if not is_sound(jar, home)]
    if absent:
        try:
            home.mkdir(parents=True, exist_ok=True)
            _clear_abandoned(home)
            # in the same file system as the cache, so that a jar moves by a rename
            with tempfile.TemporaryDirectory(prefix=".fetch-", dir=home) as temporary:
                _fetch(absent, home, Path(temporary), resolver, f"jars for {use}", quiet)
        except OSError as error:
            raise JarsUnavailable(f"the jars for {use} cannot be stored in {home}: {error}") from None
    # Spark uses the whole folder as a class path, so jars of an older lock file must go
    names = {jar.file for jar in locked}
    for stray in home.glob("*.jar"):
        if stray.name not in names:
            stray.unlink(missing_ok=True)
    return absent


def _fetch(
    jars: Sequence[Jar], home: Path, temporary: Path, resolver: Resolver, title: str, quiet: bool
) -> None:
    with (temporary / "messages").open("w+b") as messages, contextlib.ExitStack() as running:
        processes = []
        for number, share in enumerate(share_out(jars, SHARES)):
            folder = temporary / f"share-{number}"
            folder.mkdir()
            processes.append(resolver(share, folder, messages))
            # even if a later one cannot start
            running.callback(_end, processes[-1])
        with progress_bar(DownloadColumn(), TransferSpeedColumn()) as bar:
            total_bytes = sum(jar.size_bytes for jar in jars)
            task = bar.add_task(title, total=total_bytes, visible=not quiet)
            if bar.disable and not quiet:
                echo(f"downloading {title}, {total_bytes / 1e6:.0f} MB …", err=True)
            _wait(processes, temporary, lambda received: bar.update(task, completed=received))
        _move_sound_jars(jars, home, temporary)
        # checked again in the cache: only what is really there counts
        faults = [_fault(jar, temporary) for jar in jars if not is_sound(jar, home)]
        if faults:
            raise JarsUnavailable(
                f"{len(faults)} of {len(jars)} jars could not be downloaded: {', '.join(faults[:3])}"
                f"{' …' if len(faults) > 3 else ''}{_reason(messages)}"
            )


def _clear_abandoned(home: Path) -> None:
    # folders of killed fetches; recent ones may belong to another Baton that is still downloading
    for path in home.glob(".fetch-*"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > 2 * FETCH_TIMEOUT_S:
                shutil.rmtree(path)


def _move_sound_jars(jars: Sequence[Jar], home: Path, temporary: Path) -> None:
    for jar in jars:
        for path in temporary.glob(f"share-*/libs/{jar.file}"):
            # before the move: a forged jar never enters the cache
            if sha256_of(path) == jar.sha256:
                path.replace(home / jar.file)


def _fault(jar: Jar, temporary: Path) -> str:
    for path in temporary.glob(f"share-*/libs/{jar.file}"):
        return f"{jar.file} (has sha256 {sha256_of(path)}, which differs from the lock file)"
    return f"{jar.file} (missing)"


def _reason(messages: IO[bytes]) -> str:
    # Ivy prints a lot: the first line with the first of these words explains most
    messages.seek(0)
    lines = messages.read().decode(errors="replace").splitlines()
    for word in ("Exception", "Server access error", "not found", "Error"):
        for line in lines:
            if word in line:
                return f"; is the network available? ({line.strip().strip(':').strip()[:200]})"
    return ""


def _wait(processes: Sequence[subprocess.Popen[bytes]], temporary: Path, show: Callable[[int], None]) -> None:
    deadline = time.monotonic() + FETCH_TIMEOUT_S
    received, last = 0, time.monotonic()
    while any(process.poll() is None for process in processes):
        now = time.monotonic()
        if (bytes_now := _bytes_in(temporary)) != received:
            received, last = bytes_now, now
            show(received)
        # the caller ends the processes and names what is missing
        if now > deadline or now - last > STALL_TIMEOUT_S:
            return
        time.sleep(POLL_S)
    show(_bytes_in(temporary))


def _bytes_in(temporary: Path) -> int:
    total = 0
    for path in temporary.glob("share-*/cache/*/*/*/*.jar*"):
        with contextlib.suppress(OSError):
            total += path.stat().st_size
    return total


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.kill()
    process.wait()
