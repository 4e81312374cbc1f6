"""The job `lake`: copies finished sessions from Kafka to the Delta table `<lake>/sessions`, each once.

The table is its own checkpoint: each commit notes up to which offsets of the sessions topic the table holds
the group's sessions (`plan.py`). A run reads that note, appends what follows in a few large commits, and
stops where the topic ended when the run began. It compares rows only if the topic may repeat sessions, and
never rewrites any. Delta refuses the second of two commits that were planned from the same state
(`spark/delta.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.accumulators import AccumulatorParam
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from services.control.spark.delta import MOST_OVERTAKEN, Overtaken, Transaction
from services.control.spark.kafka.log import (
    RECORD_SCHEMA,
    offsets,
    read_log,
    settled_end,
    topic_id,
    topic_partitions,
)
from services.control.spark.lake import plan
from services.control.spark.lake.columns import (
    SESSIONS_COLUMNS,
    SESSIONS_PARTITIONS,
)
from services.control.spark.lake.positions import begun_sums, current_note, recounted, still_holds
from services.control.spark.lake.repeats import PLACE, find_repeats
from services.control.spark.lake.rows import NARROW_SCHEMA, ROW_SCHEMA, Counts, parse_narrow, parse_rows
from services.control.spark.lake.sums import Span, add
from services.control.spark.lake.table import LakeTable
from services.control.spark.lake.unreadable import set_aside
from services.control.spark.run.lock import CheckLock, unlocked
from services.control.spark.run.request import Result, RunRequest
from services.control.spark.session.settings import settings

OPEN_FILES: Final = "spark.sql.maxConcurrentOutputFileWriters"
"""Lets a task write several days at once, instead of sorting its records by day."""
MOST_OPEN_FILES: Final = "20"
Repeated = tuple[tuple[int, int, int], dict[str, Span]]
"""Sessions, fragments and bytes that the table holds already, or that came again; rows by day."""


def lake(spark: SparkSession, request: RunRequest, check_lock: CheckLock = unlocked) -> Result:
    """Brings the table up to the topic's current end. Returns what was added, and what the table holds.

    Parameters: `accept_loss`: 1 to continue although Kafka has lost records. `recount`: 1 to take the rows of
    the table as they are for what the lake has written (`sums.py`). Raises LostRecords, and what Spark
    raises; the next run continues where this one stopped.
    """
    filling = _Filling(spark, request, check_lock)
    overtaken = 0
    with settings(spark, {OPEN_FILES: MOST_OPEN_FILES}):
        while True:
            try:
                filling.prepare()
                if not filling.append_batch():
                    return filling.result()
                overtaken = 0
            except Overtaken:
                overtaken += 1
                if overtaken == MOST_OVERTAKEN:
                    raise


def application_of(group: str) -> str:
    """Delta's application id under which the table numbers the group's commits."""
    return f"baton.lake.{group}"


class _Sums(AccumulatorParam[Counts]):  # type: ignore[misc]
    """Adds counts; those of a task that fails are dropped."""

    def zero(self, value: Counts) -> Counts:
        return (0, 0, 0, 0, 0, {})

    def addInPlace(self, value1: Counts, value2: Counts) -> Counts:  # noqa: N802  Spark's name
        a, b = value1, value2
        return (a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3], a[4] + b[4], add(a[5], b[5]))


class _Filling:
    """One run."""

    def __init__(self, spark: SparkSession, request: RunRequest, check_lock: CheckLock) -> None:
        self._spark = spark
        self._request = request
        self._check_lock = check_lock
        self._table = LakeTable(spark, request.table("sessions"))
        self._topic_name = request.names.sessions(request.group)
        self._topic = _topic_now(spark, request, self._topic_name)
        self._records = plan.FIRST_RECORDS
        self._note: plan.Note | None = None
        self._noted_at = -1
        self._is_old = False
        self._recounts = bool(request.parameters.get("recount", 0))
        self._losses: list[str] = []
        self._done: dict[str, int] = dict.fromkeys(
            ("batches", "added", "duplicates", "unreadable", "skipped"), 0
        )

    def prepare(self) -> None:
        """Creates the table if there is none. Raises Overtaken."""
        if not self._table.exists():
            self._check_lock()
            self._table.create(SESSIONS_COLUMNS, SESSIONS_PARTITIONS)

    def append_batch(self) -> bool:
        """Appends the next batch; False if there is none. Raises Overtaken."""
        transaction = self._table.begin(application_of(self._request.group))
        batch = plan.plan_batch(
            self._known(transaction),
            self._topic,
            records=self._records,
            delivers_once=self._request.group_settings.delivery != "at_least_once",
            accept_loss=bool(self._request.parameters.get("accept_loss", 0)),
            renew=self._is_old,
        )
        if batch is None:
            return False
        records = self._records_of(batch)
        repeated: Repeated = ((0, 0, 0), {})
        if batch.comparison == "none":
            read = self._write(transaction, records)
        else:
            read, repeated = self._write_unheld(transaction, records, batch)
        if read[3]:
            set_aside(self._spark, self._request, self._topic.id, records, self._check_lock)
        before = batch.note.number
        number = (transaction.recorded() if before is None else before) + 1
        note = _counted(msgspec.structs.replace(batch.note, number=number), read, repeated)
        self._check_lock()
        still_holds(self._table, transaction)
        self._noted_at, self._note = transaction.commit(note.encode(), number), note
        self._is_old = self._recounts = False
        self._records = plan.records_for(read[0] + read[3], read[4])
        self._count(batch, read, repeated)
        return True

    def _records_of(self, batch: plan.Batch) -> DataFrame:
        if not batch.ranges:
            return self._spark.createDataFrame([], RECORD_SCHEMA)
        # Spark's reader needs a range for every partition
        at = batch.note.topics[self._topic.id]
        ranges = {number: batch.ranges.get(number, (at[number], at[number])) for number in self._topic.start}
        return read_log(
            self._spark,
            self._request.kafka,
            {(self._topic_name, number): first for number, (first, _) in ranges.items()},
            {(self._topic_name, number): end for number, (_, end) in ranges.items()},
        )

    def _known(self, transaction: Transaction) -> plan.Note:
        """The group's note for the version of the table that the transaction sees."""
        if self._note is None or self._noted_at != transaction.version:
            note, self._is_old = current_note(self._table, transaction.version, self._request.group)
            if self._recounts:
                note, self._is_old = recounted(self._table, transaction.version, note), True
            elif note.sums is None:
                note = msgspec.structs.replace(note, sums=begun_sums(self._table, note))
            self._note, self._noted_at = note, transaction.version
        return self._note

    def _write(
        self, transaction: Transaction, records: DataFrame, without: DataFrame | None = None
    ) -> Counts:
        group, topic_id = self._request.group, self._topic.id
        counts = self._spark.sparkContext.accumulator((0, 0, 0, 0, 0, {}), _Sums())

        def parse(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return parse_rows(batches, group, topic_id, counts.add)

        rows = records.select("partition", "offset", "value").mapInArrow(parse, ROW_SCHEMA)
        if without is not None:
            rows = rows.join(f.broadcast(without.select(*PLACE)), [*PLACE], "left_anti")
        constants = {
            "group": f.lit(group).alias("group"),
            "topic_id": f.lit(self._topic.id).alias("topic_id"),
        }
        transaction.write(rows.select(*(constants.get(name, f.col(name)) for name in SESSIONS_COLUMNS)))
        value: Counts = counts.value
        return value

    def _write_unheld(
        self, transaction: Transaction, records: DataFrame, batch: plan.Batch
    ) -> tuple[Counts, Repeated]:
        """Writes the sessions that the table does not hold yet; also returns the counts of the others."""
        group, topic_id = self._request.group, self._topic.id

        def parse(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return parse_narrow(batches, group, topic_id)

        narrow = records.select("partition", "offset", "value").mapInArrow(parse, NARROW_SCHEMA).persist()
        table = self._table.read(transaction.version).where(f.col("group") == group)
        repeats = None
        try:
            repeats = find_repeats(narrow, table, topic_id=topic_id, comparison=batch.comparison)
            return self._write(transaction, records, repeats.places), (repeats.counts, repeats.days)
        finally:
            narrow.unpersist()
            if repeats is not None:
                repeats.places.unpersist()

    def _count(self, batch: plan.Batch, read: Counts, repeated: Repeated) -> None:
        repeats = repeated[0][0]
        self._done["batches"] += 1
        self._done["added"] += read[0] - repeats
        self._done["duplicates"] += repeats
        self._done["unreadable"] += read[3]
        self._done["skipped"] += batch.skipped
        self._losses += batch.losses

    def result(self) -> Result:
        """What the run has done, and what the table now holds of the group."""
        note = self._note
        assert note is not None
        reached = note.topics.get(self._topic.id, {})
        result: dict[str, Any] = {
            "table": self._table.path,
            "version": self._table.version(),
            "commits": self._done["batches"],
            "sessions": note.sessions,
            "fragments": note.fragments,
            "bytes": note.bytes,
            "topic_id": self._topic.id,
            "offsets": {str(number): at for number, at in sorted(reached.items())},
        }
        return result | self._done | {"losses": [{"loss": words} for words in self._losses]}


def _counted(note: plan.Note, read: Counts, repeated: Repeated) -> plan.Note:
    (sessions, fragments, size), days = repeated
    spans = add(read[5], days, -1)
    return plan.with_counts(note, read[0] - sessions, read[1] - fragments, read[2] - size, spans)


def _topic_now(spark: SparkSession, request: RunRequest, name: str) -> plan.Topic:
    """The topic with its beginnings and its settled ends. Raises NotFound, KafkaUnavailable."""
    partitions = topic_partitions(spark, request.kafka, [name])
    end = settled_end(spark, request.kafka, partitions)
    start = offsets(spark, request.kafka, partitions, "start")
    return plan.Topic(
        id=topic_id(spark, request.kafka, name),
        start={number: offset for (_, number), offset in start.items()},
        end={number: offset for (_, number), offset in end.items()},
    )
