"""What an audit reads from Kafka: the sessions topic and the fragments topics, between fixed offsets.

Retention may remove records while the audit reads them; `lost` finds that in what the readers report. The
next attempt starts further `ahead`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from services.control.spark.audit.judging import LOG_READ, TOPIC_READ
from services.control.spark.audit.part import Part
from services.control.spark.audit.rows import ROW_SCHEMA, read_delivered_rows, read_fragment_rows
from services.control.spark.audit.seam import Seam
from services.control.spark.kafka.log import Partition, offsets, read_log, settled_end, topic_partitions
from services.control.spark.run.request import RunRequest

LEAST_AHEAD: Final = 100
MOST_AHEAD: Final = 2
"""A source that starts ahead leaves out at least a hundredth and at most half of a partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Partitions that are read from `start` to `end`; `numbers`: by which number readers report each.

    `skipped`: how many offsets that Kafka has are left out, to stay ahead of retention.
    """

    start: Mapping[Partition, int]
    end: Mapping[Partition, int]
    numbers: Mapping[Partition, int]
    kind: str
    skipped: int = 0

    @property
    def starts(self) -> dict[int, int]:
        """Where the reading begins, by number."""
        return {self.numbers[one]: offset for one, offset in self.start.items()}

    @property
    def ends(self) -> dict[int, int]:
        """Where it ends, by number."""
        return {self.numbers[one]: offset for one, offset in self.end.items()}

    @property
    def records(self) -> int:
        """How many records are read at most: transactions leave gaps."""
        return sum(self.end[one] - offset for one, offset in self.start.items())

    def ahead(self, offsets_: int) -> Source:
        """The source without the first so many offsets of each partition; 0: the whole.

        At least a hundredth, and at most half of each. All partitions, because retention comes to them at
        different times.
        """
        if not offsets_:
            return self
        start = {}
        for one, first in self.start.items():
            size = self.end[one] - first
            start[one] = first + min(max(offsets_, -(-size // LEAST_AHEAD)), -(-size // MOST_AHEAD))
        skipped = sum(start.values()) - sum(self.start.values())
        return replace(self, start=start, skipped=skipped)

    def lost(self, spark: SparkSession, request: RunRequest, verdicts: Sequence[Any]) -> int:
        """How many offsets retention has removed since the start was fixed, at most from one partition.

        Of those partitions of which the readers may lack records: because the partition now begins above
        `start`, and the reader began above `start` or met a gap below that.
        """
        now = offsets(spark, request.kafka, list(self.start), "start")
        firsts: dict[int, int] = {}
        gaps: dict[int, int] = {}
        for one in verdicts:
            if one.kind == self.kind:
                firsts[one.stream] = max(one.n, firsts.get(one.stream, one.n))
                gap = int(one.detail)
                if gap >= 0:
                    gaps[one.stream] = min(gap, gaps.get(one.stream, gap))
        most = 0
        for one, start in self.start.items():
            number, end = self.numbers[one], self.end[one]
            begins = min(now[one], end)
            # without a report nothing was read
            if start < begins and (firsts.get(number, end) > start or gaps.get(number, end) <= now[one]):
                most = max(most, begins - start)
        return most


def sessions_topic(spark: SparkSession, request: RunRequest, part: Part) -> Source:
    """The sessions topic up to its settled end."""
    partitions = topic_partitions(spark, request.kafka, [request.names.sessions(request.group)])
    end = settled_end(spark, request.kafka, partitions)
    return Source(
        start=_start(spark, request, part, end),
        end=end,
        numbers={one: one[1] for one in partitions},
        kind=TOPIC_READ,
    )


def fragments_topics(spark: SparkSession, request: RunRequest, part: Part, seam: Seam) -> Source:
    """The fragments topics of the part, from where the group starts up to their stable ends."""
    topics = {request.names.fragments(stream): stream for stream in part.streams}
    partitions = topic_partitions(spark, request.kafka, topics)
    end = offsets(spark, request.kafka, partitions, "stable")
    begins = _start(spark, request, part, end)
    return Source(
        start={one: max(begins[one], min(seam.starts.get(topics[one[0]], 0), end[one])) for one in begins},
        end=end,
        numbers={one: topics[one[0]] for one in partitions},
        kind=LOG_READ,
    )


def _start(
    spark: SparkSession, request: RunRequest, part: Part, end: Mapping[Partition, int]
) -> dict[Partition, int]:
    begins = offsets(spark, request.kafka, list(end), "start")
    if part.since is None:
        return begins
    since = offsets(spark, request.kafka, list(end), part.since)
    # -1: no record is young enough, so start at the end
    return {one: end[one] if since[one] < 0 else min(max(since[one], begins[one]), end[one]) for one in end}


def delivered_rows(
    spark: SparkSession, request: RunRequest, part: Part, source: Source, judges: int, *, with_sums: bool
) -> DataFrame:
    """The delivered sessions of the part in ROW_SCHEMA."""
    streams = None if part.is_every_stream else frozenset(part.streams)

    def is_wanted(stream: int, key: bytes) -> bool:
        if stream < 0:
            return streams is None and part.below is None
        return (streams is None or stream in streams) and part.has_key(key)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return read_delivered_rows(batches, is_wanted, judges, with_sums=with_sums)

    records = read_log(spark, request.kafka, source.start, source.end, fail_on_loss=False)
    return records.select("partition", "offset", "key", "value").mapInArrow(read, ROW_SCHEMA)


def fragment_rows(
    spark: SparkSession,
    request: RunRequest,
    part: Part,
    source: Source,
    judges: int,
    seam: Seam,
    places: Mapping[int, Sequence[int]],
) -> DataFrame:
    """The fragments of the part in ROW_SCHEMA, without those that stand in sessions of followed groups."""
    future_ms = request.group_settings.future_ms
    shared_seam = spark.sparkContext.broadcast(seam)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        covers = shared_seam.value.covers

        def is_judged(stream: int, key: bytes, offset: int) -> bool:
            return part.has_key(key) and not covers(stream, key, offset)

        return read_fragment_rows(batches, future_ms, is_judged, judges, places)

    stream = f.substring_index("topic", ".", -1).cast("int").alias("stream")
    records = read_log(spark, request.kafka, source.start, source.end, fail_on_loss=False)
    return records.select(stream, "offset", "appended", "key", "value").mapInArrow(read, ROW_SCHEMA)
