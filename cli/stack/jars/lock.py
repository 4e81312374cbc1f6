"""The lock file of jars: names, versions and checksums; and the folder that caches the jars.

Pure except for reading the file. `downloads.py` downloads the jars, `local/programs.py` builds Kafka's
class path from them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from cli.stack.faults import LockMalformed

Use = Literal["kafka", "mirror", "s3", "spark", "tools"]
"""`tools`: Kafka's own commands, beside which the tests put ours."""
USES: tuple[Use, ...] = ("kafka", "spark")
"""What every Baton needs."""
OPTIONAL: tuple[Use, ...] = ("mirror", "s3")
"""What `baton jars --with` fetches in addition: `mirror` for MirrorMaker, beside `kafka`; `s3` for a lake on
an object store."""
LOCK_FILE = Path(__file__).parents[2] / "jars.lock"


Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]+$")]
"""Part of a file name, so it must not lead out of the folder."""


class Jar(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the lock file, in the order of its columns."""

    use: Use
    group: Name
    artifact: Name
    version: Name
    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
    size_bytes: Annotated[int, Meta(ge=0)] = msgspec.field(name="bytes")

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
    columns = list(Jar.__struct_encode_fields__)
    # so that a file with swapped columns cannot be read
    if not rows or rows[0][1] != columns:
        raise LockMalformed(f"the lock file of jars must begin with the columns {', '.join(columns)}")
    return [_parse_row(number, columns, cells) for number, cells in rows[1:]]


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
    # not `folder/*`, which takes any jar that lies there
    return os.pathsep.join(str(folder / jar.file) for jar in jars)


def _parse_row(number: int, columns: list[str], cells: list[str]) -> Jar:
    if len(cells) != len(columns):
        raise LockMalformed(
            f"line {number} of the lock file of jars has {len(cells)} columns, not {len(columns)}"
        )
    try:
        # not strict: the size is text in the file
        return msgspec.convert(dict(zip(columns, cells, strict=True)), Jar, strict=False)
    except msgspec.ValidationError as error:
        raise LockMalformed(f"line {number} of the lock file of jars: {error}") from None
