"""The lock file of jars: names, versions and checksums; and the folder that caches the jars.

Pure except for reading the file. `cli/stack/jars.py` downloads the jars, `cli/stack/local.py` builds Kafka's
class path from them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cli.stack.faults import LockMalformed

Use = Literal["kafka", "spark"]
USES: tuple[Use, ...] = ("kafka", "spark")
LOCK_FILE = Path(__file__).parents[1] / "jars.lock"
_COLUMNS = ["use", "group", "artifact", "version", "sha256", "bytes"]
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Jar:
    """One line of the lock file."""

    use: Use
    group: str
    artifact: str
    version: str
    sha256: str
    size_bytes: int

    @property
    def file(self) -> str:
        """The jar's file name in the cache."""
        return f"{self.artifact}-{self.version}.jar"


def parse_lock(text: str) -> list[Jar]:
    """The jars of a lock file in its order; comments start with `#`.

    Raises LockMalformed, which names the line.
    """
    rows = [
        (number, line.split("\t"))
        for number, line in enumerate(text.splitlines(), start=1)
        if line.strip() and not line.startswith("#")
    ]
    if not rows or rows[0][1] != _COLUMNS:
        raise LockMalformed(f"the lock file of jars must begin with the columns {', '.join(_COLUMNS)}")
    return [_parse_row(number, cells) for number, cells in rows[1:]]


def read_lock(use: Use | None = None) -> list[Jar]:
    """The jars of one use, or of all. Raises LockMalformed."""
    return [jar for jar in parse_lock(LOCK_FILE.read_text()) if use is None or jar.use == use]


def cache_folder(environment: Mapping[str, str] | None = None) -> Path:
    """The folder for downloads: BATON_CACHE, or `baton` in the user's cache folder."""
    env = os.environ if environment is None else environment
    if own := env.get("BATON_CACHE"):
        return Path(own).expanduser().absolute()
    base = env.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path(env.get("HOME") or Path.home()) / ".cache").absolute() / "baton"


def jar_folder(use: Use, environment: Mapping[str, str] | None = None) -> Path:
    """The folder with exactly the jars of one use."""
    return cache_folder(environment) / "jars" / use


def class_path(folder: Path, jars: Iterable[Jar]) -> str:
    """A JVM's class path that names each jar, so that stray files in the folder have no effect."""
    return os.pathsep.join(str(folder / jar.file) for jar in jars)


def _parse_row(number: int, cells: list[str]) -> Jar:
    if len(cells) != len(_COLUMNS):
        raise LockMalformed(f"line {number} of the lock file of jars has {len(cells)} columns, not 6")
    use, group, artifact, version, sha256, size = cells
    if use not in USES:
        raise LockMalformed(
            f"line {number} of the lock file of jars: {use!r} is not one of {', '.join(USES)}"
        )
    if not all(_NAME.fullmatch(name) for name in (group, artifact, version)):
        raise LockMalformed(f"line {number} of the lock file of jars names no artifact")
    if not _SHA256.fullmatch(sha256) or not size.isdecimal():
        raise LockMalformed(f"line {number} of the lock file of jars has no sha256 or no size")
    return Jar(use=use, group=group, artifact=artifact, version=version, sha256=sha256, size_bytes=int(size))
