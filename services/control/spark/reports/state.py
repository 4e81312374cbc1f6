"""The state: one Delta table with the sums of all sessions that were counted so far.

`reports/_partials` is the inside of the job: the reports are read from it, and it can be deleted at any time
(the next run counts everything again). A batch of a part is one partition. Its marker row says which versions
of `sessions` it counts. So a batch and the position after it are one commit, and a run that was killed has
either added its batch or not.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import unquote

import msgspec
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as f

from services.control.spark.delta import (
    delta_log,
    files_of,
    newest_snapshot,
    quoted,
    raise_if_overtaken,
    retry_overtaken,
)
from services.control.spark.lake.table import NO_VECTORS, LakeTable
from services.control.spark.reports.batches import BEGINNING, Batch, merged_level
from services.control.spark.reports.counting import COLUMNS, add_up, blocks_part
from services.control.spark.reports.periods import Range, between
from services.control.spark.run.lock import CheckLock

PARTITIONS = {"group": "STRING", "part": "STRING", "since": "BIGINT", "version": "BIGINT"}
MARKER = {"level": "INT", "lineage": "STRING", "table_id": "STRING", "commit": "STRING"}
"""Columns of the marker row alone."""
SCHEMA = PARTITIONS | MARKER | COLUMNS


class State:
    """The state of one group, in the Delta table `path`."""

    def __init__(self, spark: SparkSession, path: str, group: str, check_lock: CheckLock) -> None:
        self._spark = spark
        self._path = path
        self._group = group
        self._check_lock = check_lock
        self._listed: dict[str, dict[str, int]] | None = None
        self._newest: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<State of group {self._group} in {self._path}>"

    def prepare(self) -> None:
        """Creates the table if it is missing. Serializable: a replaced batch excludes any other commit."""
        table = LakeTable(self._spark, self._path)
        if not table.exists():
            self._check_lock()
            table.create(SCHEMA, PARTITIONS, NO_VECTORS | {"delta.isolationLevel": "Serializable"})

    def size(self) -> int:
        """Bytes of the group's files."""
        return sum(size for files in self._files().values() for size in files.values())

    def batches(self) -> dict[str, list[Batch]]:
        """The batches of every part, sorted."""
        if not self._files():
            return {}
        markers = self._read(*self._files()).where("lineage IS NOT NULL")
        markers = markers.select("part", "since", "version", *MARKER)
        found: dict[str, list[Batch]] = {}
        for row in markers.collect():
            values = row.asDict()
            found.setdefault(values.pop("part"), []).append(Batch(**values))
        return {part: sorted(batches) for part, batches in found.items()}

    def rows(self, part: str) -> DataFrame:
        """The rows of a part, in all of its batches, each with the `version` up to which its batch counts."""
        return self._read(part).where("lineage IS NULL").select("version", *COLUMNS)

    def rows_of_range(self, parts: Sequence[str], within: Range) -> DataFrame | None:
        """Rows with the same sums over the range as those of the parts: of whole blocks, and of quarters for
        the rest. None if there are no blocks yet.
        """
        first, end = within.blocks()
        if first >= end or all(self.blocks_until(part) == BEGINNING for part in parts):
            return None
        found = []
        for part in parts:
            rows, until = within.of(self.rows(part)), self.blocks_until(part)
            is_old = f.col("version") <= until
            # as frames of their own, because Spark skips files only by conditions that stand alone
            found += [rows.where(~is_old), rows.where(is_old & ~between(first, end))]
            if until != BEGINNING:
                found.append(self.rows(blocks_part(part)).where(between(first, end)))
        return functools.reduce(DataFrame.unionAll, found)

    def blocks_until(self, part: str) -> int:
        """The version of `sessions` up to which the part's blocks count, or BEGINNING."""
        self._files()
        return self._newest.get(blocks_part(part), BEGINNING)

    def append(self, rows: Mapping[str, DataFrame], batches: Mapping[str, Batch]) -> None:
        """Adds a batch to each part in one commit. Repeating it is a no-op, also by another driver."""
        parts = hashlib.blake2b("\n".join(sorted(rows)).encode(), digest_size=6).hexdigest()
        lineage = next(iter(batches.values())).lineage
        writer = self._in_partitions(rows, batches).write.format("delta").mode("append")
        writer = writer.option("txnAppId", f"baton-reports-{lineage}-{parts}")
        self._save(writer.option("txnVersion", next(iter(batches.values())).version))

    def replace(
        self, rows: Mapping[str, DataFrame], batches: Mapping[str, Batch], *, all_parts: bool
    ) -> None:
        """Replaces the parts, or all of the group, by one batch each, in one commit."""
        parts = "" if all_parts else f" AND `part` IN ({_quoted(rows)})"
        self._overwrite(self._in_partitions(rows, batches), f"`group` = '{self._group}'{parts}")

    def merge(self, parts: Sequence[str], batches: Sequence[Batch]) -> None:
        """Sums these batches of each part into one, in one commit for all parts."""
        first, last = batches[0], batches[-1]
        merged = msgspec.structs.replace(last, since=first.since, level=merged_level(batches))
        where = f"since >= {first.since} AND version <= {last.version}"
        rows = {
            part: add_up(self._read(part).where(f"lineage IS NULL AND {where}").select(*COLUMNS), part)
            for part in parts
        }
        written = self._in_partitions(rows, dict.fromkeys(parts, merged))
        self._overwrite(written, f"`group` = '{self._group}' AND `part` IN ({_quoted(parts)}) AND {where}")

    def _files(self) -> dict[str, dict[str, int]]:
        """The paths of each part's files with their sizes, as of this run's last commit."""
        if self._listed is None:
            snapshot = newest_snapshot(self._spark, delta_log(self._spark, self._path))
            files = files_of(self._spark, snapshot).select("path", "partitionValues", "size")
            self._listed, self._newest = {}, {}
            for path, values, size in files.where(f.col("partitionValues")["group"] == self._group).collect():
                part, version = values["part"], int(values["version"])
                self._listed.setdefault(part, {})[f"{self._path}/{unquote(path)}"] = size
                self._newest[part] = max(version, self._newest.get(part, BEGINNING))
        return self._listed

    def _read(self, *parts: str) -> DataFrame:
        """The rows of these parts with their markers.

        Read as plain Parquet: Delta starts a job to find the files of each scan, and a report has many.
        """
        columns = ", ".join(f"`{name}` {kind}" for name, kind in SCHEMA.items())
        paths = [path for part in parts for path in self._files()[part]]
        return self._spark.read.schema(columns).option("basePath", self._path).parquet(*paths)

    def _overwrite(self, rows: DataFrame, where: str) -> None:
        self._save(rows.write.format("delta").mode("overwrite").option("replaceWhere", where))

    def _save(self, writer: DataFrameWriter) -> None:
        """Commits, and again if another job has committed first: `maintain`, or `reports` of another group.

        Neither changes this group's rows, and no other run of the group can have the lock, so the rows hold.
        """

        def save() -> None:
            self._check_lock()
            try:
                writer.save(self._path)
            except Exception as error:
                raise_if_overtaken(error)
                raise

        retry_overtaken(save)
        self._listed = None

    def _in_partitions(self, rows: Mapping[str, DataFrame], batches: Mapping[str, Batch]) -> DataFrame:
        """The rows of all parts with their markers. In a file by time, so that a range reads little of it."""
        every = self._markers(batches)
        for part, of_part in rows.items():
            batch = batches[part]
            place = {"group": self._group, "part": part, "since": batch.since, "version": batch.version}
            placed = of_part.withColumns(
                {name: f.lit(value).cast(PARTITIONS[name]) for name, value in place.items()}
            )
            every = every.unionByName(placed, allowMissingColumns=True)
        return every.select(*SCHEMA).sortWithinPartitions("start")

    def _markers(self, batches: Mapping[str, Batch]) -> DataFrame:
        """A row for each batch, without sums."""
        columns = PARTITIONS | MARKER
        rows = [msgspec.structs.asdict(one) | {"group": self._group, "part": p} for p, one in batches.items()]
        values = (", ".join(quoted(str(row[name])) for name in columns) for row in rows)
        markers = self._spark.sql(
            f"SELECT * FROM VALUES ({'), ('.join(values)}) AS marker({', '.join(columns)})"
        )
        return markers.select(
            *(
                (f.col(name) if name in columns else f.lit(None)).cast(kind).alias(name)
                for name, kind in SCHEMA.items()
            )
        )


def _quoted(parts: Iterable[str]) -> str:
    return ", ".join(map(quoted, parts))
