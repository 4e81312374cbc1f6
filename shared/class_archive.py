"""The archive of a program's classes, from which a JVM starts in half the time (Java's class data sharing).

It belongs to the Python environment, because it is valid for one Java and the jars of this environment.
`baton jars` makes it; whoever starts a JVM names it. Java checks it, and loads every class from its jar if
the archive is missing or was made for other jars.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final, Literal

Program = Literal["kafka", "spark"]
PROGRAMS: Final[tuple[Program, ...]] = ("kafka", "spark")
_QUIET: Final = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
"""An archive for other jars is no reason to warn: Java starts without it."""


def archive_of(program: Program) -> Path:
    """The file of its archive in this environment, whether it is there or not."""
    return Path(sys.prefix, "share", "baton", "classes", f"{program}.jsa")


def from_archive(program: Program) -> tuple[str, ...]:
    """Java's options to start from the archive; none if there is no archive."""
    archive = archive_of(program)
    return (f"-XX:SharedArchiveFile={archive}", *_QUIET) if archive.is_file() else ()


def into_archive(archive: Path) -> tuple[str, ...]:
    """Java's options to write the archive when the program ends."""
    return (f"-XX:ArchiveClassesAtExit={archive}", *_QUIET)
