"""The job `maintain`: compacts the lake's tables, clusters them by key and removes old versions.

It compacts only partitions that have gained files since the last time. Readers and the other jobs can
continue meanwhile: compaction changes no rows, and Delta accepts appends at the same time. If another job
replaces the files that are being compacted, Delta refuses the second of the two commits, and whoever makes it
plans again.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from services.control.spark.delta import Overtaken, quoted, raise_if_overtaken, retry_overtaken
from services.control.spark.files import folders
from services.control.spark.lake.table import LakeTable
from services.control.spark.run.lock import CheckLock, unlocked
from services.control.spark.run.request import Result, RunRequest
from services.control.spark.session.settings import for_size, settings
from shared.errors import InvalidInput

FILE_BYTES: Final = 256 * 1024 * 1024
"""About the size of a compacted file."""
AT_ONCE: Final = 50
"""How many partitions one OPTIMIZE compacts."""
KEEP_DAYS: Final = 7
RETENTION: Final = "delta.deletedFileRetentionDuration"
LOG_RETENTION: Final = "delta.logRetentionDuration"
LOG_DAYS: Final = 30
"""Delta's default; the log must reach back as far as the files."""
CLUSTERED: Final = {"sessions": "key"}
"""The column that each table's files are clustered by."""
UNLOGGED: Final = {"spark.databricks.delta.vacuum.logging.enabled": "false"}
"""Else each VACUUM adds two commits to the table's history: more than half of the CPU time of an upkeep that
finds nothing to do."""
COMPACTED_BY_REPORTS: Final = "reports/_partials"
"""The job `reports` sums up its own batches. OPTIMIZE would lose the order of their rows and the bounds of
their times, by which `reports` skips what it does not need."""


class Part(NamedTuple):
    """A partition: its values by column, its number of files, and their bytes."""

    values: Mapping[str, str | None]
    files: int
    size: int


def maintain(spark: SparkSession, request: RunRequest, check_lock: CheckLock = unlocked) -> Result:
    """Maintains every table of the lake that exists. Returns what it did to each.

    Parameter `keep_days` (1 or more): for how long old versions, and files that no version uses, are kept.
    Raises Overtaken, after it has maintained the others, if other jobs kept committing to a table first.
    """
    keep_days = request.parameters.get("keep_days", KEEP_DAYS)
    if type(keep_days) is not int or keep_days < 1:
        raise InvalidInput(f"keep_days must be 1 or more, not {keep_days!r}")
    done: dict[str, Any] = {}
    overtaken = []
    for name in _tables(spark, request):
        table = LakeTable(spark, request.table(*name.split("/")))
        if not table.exists():
            continue
        done[name] = {"compacted": 0}
        try:
            with settings(spark, for_size(table.size())):
                if name != COMPACTED_BY_REPORTS:
                    compact = functools.partial(_compact, spark, table, CLUSTERED.get(name), check_lock)
                    done[name]["compacted"] = retry_overtaken(compact)
                _vacuum(spark, table, keep_days, check_lock)
        except Overtaken:
            overtaken.append(name)
        done[name]["version"] = table.version()
    if overtaken:
        raise Overtaken(f"other jobs kept committing first to {', '.join(overtaken)}; the rest is maintained")
    return {"keep_days": keep_days, "tables": done}


def partitions_to_compact(parts: list[Part], file_bytes: int = FILE_BYTES) -> list[Part]:
    """The partitions with more files than compaction would leave if it filled each file only by half.

    A partition that was compacted is not chosen again before it gains files.

    >>> partitions_to_compact([Part({"day": "a"}, 1, 10), Part({"day": "b"}, 2, 10)], 100)
    [Part(values={'day': 'b'}, files=2, size=10)]
    """
    return [part for part in parts if part.files > max(1, math.ceil(part.size / (file_bytes / 2)))]


def _compact(spark: SparkSession, table: LakeTable, key: str | None, check_lock: CheckLock) -> int:
    """Compacts what needs it; returns the number of partitions.

    Raises Overtaken if `reports` has replaced what was being compacted, or somebody else has.
    """
    chosen = partitions_to_compact(_parts(table))
    by = f" ZORDER BY (`{key}`)" if key else ""
    options = {
        "spark.databricks.delta.optimize.maxFileSize": str(FILE_BYTES),
        "spark.databricks.delta.optimize.minFileSize": str(FILE_BYTES),
        "spark.databricks.io.skipping.mdc.sortWithinFiles": "true",
    }
    with settings(spark, options):
        for first in range(0, len(chosen), AT_ONCE):
            some = [_condition(part.values) for part in chosen[first : first + AT_ONCE]]
            where = f" WHERE {' OR '.join(some)}" if all(some) else ""
            check_lock()
            try:
                spark.sql(f"OPTIMIZE {table.sql_name}{where}{by}")
            except Exception as error:
                raise_if_overtaken(error)
                raise
    return len(chosen)


def _vacuum(spark: SparkSession, table: LakeTable, keep_days: int, check_lock: CheckLock) -> None:
    """Removes older files. Delta takes the age from the table's property, not from the statement."""
    check_lock()
    if table.property(RETENTION, f"interval {KEEP_DAYS} days") != f"interval {keep_days} days":
        wanted = {RETENTION: keep_days, LOG_RETENTION: max(keep_days, LOG_DAYS)}
        retry_overtaken(
            functools.partial(
                table.set_properties, {name: f"interval {days} days" for name, days in wanted.items()}
            )
        )
    with settings(spark, UNLOGGED):
        spark.sql(f"VACUUM {table.sql_name}")


def _parts(table: LakeTable) -> list[Part]:
    # each file lists its values in any order: Spark always in the same one, other writers not
    place = f.map_from_entries(f.array_sort(f.map_entries("partitionValues")))
    rows = (
        table.files()
        .groupBy(f.to_json(place).alias("place"))
        .agg(f.count("*").alias("files"), f.sum("size").alias("size"))
    )
    found = [Part(json.loads(row.place or "{}"), row.files, row["size"]) for row in rows.collect()]
    return sorted(found, key=lambda part: str(part.values))


def _condition(values: Mapping[str, str | None]) -> str:
    each = [
        f"`{name}` IS NULL" if value is None else f"`{name}` = {quoted(value)}"
        for name, value in values.items()
    ]
    return f"({' AND '.join(each)})" if each else ""


def _tables(spark: SparkSession, request: RunRequest) -> list[str]:
    """The names of the lake's tables, whether or not they exist."""
    return [
        "sessions",
        "unreadable",
        *(f"reports/{name}" for name in folders(spark, request.table("reports"))),
    ]
