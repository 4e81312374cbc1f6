"""The archive of a program's classes, from which a JVM starts sooner (Java's class data sharing).

It belongs to the Python environment, because it is valid for one Java and the jars of this environment.
`baton jars` makes it. We pass it to Java as an option, and Java checks it: if it is missing or was made for
other jars, Java loads every class from its jar, as usual.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final, Literal

Program = Literal["kafka", "spark"]
PROGRAMS: Final[tuple[Program, ...]] = ("kafka", "spark")
_QUIET: Final = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
"""Otherwise Java warns of an archive that was made for other jars, although it works without one."""


def archive_of(program: Program) -> Path:
    """The file of its archive in this environment, whether it is there or not."""
    return Path(sys.prefix, "share", "baton", "classes", f"{program}.jsa")


def from_archive(program: Program) -> tuple[str, ...]:
    """The Java options that use the archive; empty if there is none."""
    archive = archive_of(program)
    return (f"-XX:SharedArchiveFile={archive}", *_QUIET) if archive.is_file() else ()


def into_archive(archive: Path) -> tuple[str, ...]:
    """The Java options that write the archive when the program ends."""
    return (f"-XX:ArchiveClassesAtExit={archive}", *_QUIET)
