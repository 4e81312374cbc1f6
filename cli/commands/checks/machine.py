"""Checks of this machine: Java, free space where Baton writes, and whether the lake's tables can be read."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

from cli.commands.checks.findings import Finding, ok, unknown, wrong
from cli.stack.faults import JavaMissing
from cli.stack.jars.java import find_java
from shared.errors import BatonError

LEAST_FREE_BYTES = 2 * 10**9
LEAST_FREE_SHARE = 0.05
"""Kafka stops a broker whose disk is full, and a Delta table needs room for its next version."""


async def check_java() -> list[Finding]:
    """Whether ZooKeeper, Kafka and Spark could be started here."""
    try:
        return [ok("java", await asyncio.to_thread(find_java))]
    except JavaMissing as error:
        todo = "only the local stack and Spark need it: install it, or set JAVA_HOME"
        return [wrong("java", error.detail, todo)]


async def check_disk(
    folder: Path, usage_of: Callable[[Path], tuple[int, int, int]] = shutil.disk_usage
) -> list[Finding]:
    """Whether the file system of the folder, which need not exist yet, has room."""
    total, _, free = usage_of(_existing(folder))
    about, says = f"disk of {folder}", f"{free / 1e9:,.1f} GB free of {total / 1e9:,.1f} GB"
    if free < LEAST_FREE_BYTES or free < LEAST_FREE_SHARE * total:
        return [wrong(about, says, "make room: a full disk stops Kafka and the jobs")]
    return [ok(about, says)]


def _existing(folder: Path) -> Path:
    """The folder, or the nearest above it that exists."""
    whole = folder.absolute()
    return next(path for path in (whole, *whole.parents) if path.exists())


async def check_lake(lake: str, namespace: str) -> list[Finding]:
    """A finding for each table: its newest version opens, has all its files, and gives a row."""
    try:
        from services.control.tables.lake import Lake
    except ImportError as error:
        return [unknown("lake", f"the check could not run: {error.name} is not installed here")]

    def look() -> list[Finding]:
        found = Lake(lake, namespace)
        names = found.names()
        if not names:
            return [ok(f"lake {found.root}", "there are no tables yet; `baton run lake` makes them")]
        return [_check_table(found, name) for name in names]

    return await asyncio.to_thread(look)


def _check_table(lake: object, name: str) -> Finding:
    from services.control.tables.lake import Lake, reading

    assert isinstance(lake, Lake)
    about = f"table {name}"
    try:
        table = lake.open(name)
        with reading(name):
            files = [Path(uri) for uri in table.file_uris() if "://" not in uri]
            missing = [file for file in files if not file.exists()]
            if missing:
                says = f"{len(missing):,} of its {len(files):,} files are missing, such as {missing[0].name}"
                return wrong(about, says, "restore the files, or go back (docs/lake.md)")
            table.to_pyarrow_dataset().head(1)
    except BatonError as error:
        return wrong(about, error.detail, "look at its folder; docs/lake.md says how a table is rebuilt")
    return ok(about, f"version {table.version()}")
