"""The files of a running local stack in its home: process identities, addresses, and a lock.

`baton up` writes the state, `baton down` finds the processes by it, never by name. The supervising process
holds the lock until it dies, so the lock alone decides whether a stack runs in this home.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from cli.stack.faults import AlreadyRunning, HomeUnusable
from cli.stack.processes.identity import Identity
from cli.terminal.local_stack import LOCK_FILE, STATE_FILE, Addresses

WRITTEN = ("zookeeper", "kafka", "spark", "runs", "lake", "logs")
"""The folders in which the processes keep people's data, such as the segments of Kafka's log."""


class ProcessState(msgspec.Struct, frozen=True, kw_only=True):
    """One supervised process; `identity` is None while it does not run."""

    name: str
    address: str
    identity: Identity | None = None


class StackState(Addresses, frozen=True, kw_only=True):
    """The local stack of one home."""

    supervisor: Identity
    ready: bool = False
    processes: list[ProcessState] = msgspec.field(default_factory=list)


def state_file(home: Path) -> Path:
    """The file with the state of the stack that runs in this home."""
    return home / STATE_FILE


def save_state(home: Path, state: StackState) -> None:
    """Replaces the stored state atomically."""
    # with our pid, so that two writers never share one
    temporary = home / f".stack-{os.getpid()}.json"
    temporary.write_bytes(msgspec.json.format(msgspec.json.encode(state), indent=2))
    temporary.replace(state_file(home))


def load_state(home: Path) -> StackState | None:
    """The stored state, or None without a readable one."""
    try:
        return msgspec.json.decode(state_file(home).read_bytes(), type=StackState)
    # a damaged file is like none: the lock decides whether a stack runs
    except (OSError, msgspec.DecodeError):
        return None


def forget_state(home: Path) -> None:
    """Removes the stored state, once nothing runs any more. Raises HomeUnusable."""
    try:
        state_file(home).unlink(missing_ok=True)
    except OSError as error:
        raise home_unusable(home, error) from None


def make_home(home: Path) -> None:
    """Makes the folder and those above it, and lets nobody else into what it holds. Raises HomeUnusable."""
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        # a home that was there before may serve others, too: only what an earlier start has written is closed
        for folder in filter(Path.is_dir, (home / name for name in WRITTEN)):
            folder.chmod(0o700)
    except OSError as error:
        raise home_unusable(home, error) from None


def home_unusable(home: Path, error: OSError) -> HomeUnusable:
    """The error for a home in which the operating system refuses something."""
    # the folder that is refused may be one above the home
    place = "" if error.filename in (None, str(home)) else f" ({error.filename})"
    return HomeUnusable(f"the home {home} cannot be used: {error.strerror}{place}; choose another --home")


@contextlib.contextmanager
def lock_home(home: Path) -> Iterator[None]:
    """Reserves the home, which is made if it is missing, for this process during the block.

    Whatever this process and its children write during the block is closed to other users. Raises
    HomeUnusable, AlreadyRunning.
    """
    make_home(home)
    try:
        file = (home / LOCK_FILE).open("w")
    except OSError as error:
        raise home_unusable(home, error) from None
    with file:
        # the kernel releases the lock when the process dies, so a crash leaves no stale one
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            state = load_state(home)
            pid = f" (pid {state.supervisor.pid})" if state else ""
            raise AlreadyRunning(
                f"a local stack is already running in {home}{pid}: stop it with `baton down --home {home}`,"
                " or choose another --home and --port-offset"
            ) from None
        before = os.umask(0o077)
        try:
            yield
        finally:
            os.umask(before)
