"""Finds the records of a batch whose sessions the table already holds, or that repeat one another.

Used only for batches that may repeat something (`plan.Comparison`). It reads only the ids of the table, in
the days of the batch and in files that may hold its sessions by their streams, first offsets and the times
when they began. A session's copies agree in all of these (docs/protocol.md). Offsets of different streams
overlap, but the times are Kafka's, so files of earlier hours of the day are skipped as well.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from services.control.spark.lake.plan import Comparison
from services.control.spark.lake.sums import Span

MOST_DAYS: Final = 400
"""With more days in one batch, the whole group is read instead of each day."""
MOST_BOXES: Final = 24
"""With more streams in a batch, neighbours share bounds: Java does not compile a very long condition."""
PLACE: Final = ("topic_partition", "topic_offset")
SUMMED: Final = ("fragments", "bytes", "day", "checksum")


class Box(NamedTuple):
    """Bounds of sessions of neighbouring streams; all inclusive."""

    first_stream: int
    last_stream: int
    low: int
    high: int
    since_ms: int
    until_ms: int


class Repeats(NamedTuple):
    """The places of the records to leave out, how many sessions, fragments and bytes they hold; by day."""

    places: DataFrame
    counts: tuple[int, int, int]
    days: dict[str, Span]


def find_repeats(narrow: DataFrame, table: DataFrame, *, topic_id: str, comparison: Comparison) -> Repeats:
    """The repeats among `narrow` (NARROW_SCHEMA), against the group's rows in `table`."""
    bounds = [
        f.min("first_offset").alias("low"),
        f.max("first_offset").alias("high"),
        f.min("opened_at").alias("since_ms"),
        f.max("opened_at").alias("until_ms"),
        f.collect_set("day").alias("days"),
    ]
    streams = narrow.groupBy("stream").agg(*bounds).orderBy("stream").collect()
    first_of_all = Window.partitionBy("id").orderBy(*PLACE)
    within = (
        narrow.withColumn("place", f.row_number().over(first_of_all))
        .where("place > 1")
        .select(*PLACE, *SUMMED)
    )
    found = within
    if streams:
        boxes = [
            Box(one.stream, one.stream, one.low, one.high, one.since_ms, one.until_ms) for one in streams
        ]
        held = table.where(functools.reduce(operator.or_, map(_is_in, few_boxes(boxes))))
        days = set().union(*(one.days for one in streams))
        if len(days) <= MOST_DAYS:
            held = held.where(f.col("day").isin(sorted(days)))
        if comparison == "others":
            held = held.where(_is_other(topic_id))
        arrived = f.broadcast(narrow.select("id", *PLACE, *SUMMED))
        found = within.unionByName(held.select("id").join(arrived, "id").drop("id")).distinct()
    found = found.persist()
    sums = found.groupBy("day").agg(
        *(f.count("*"), f.sum("fragments"), f.sum("bytes"), f.sum(f.col("checksum").cast("decimal(38,0)")))
    )
    rows = sums.collect()
    sessions, fragments, size = (sum(row[at] for row in rows) for at in (1, 2, 3))
    return Repeats(found, (sessions, fragments, size), {str(row[0]): (row[1], int(row[4])) for row in rows})


def few_boxes(boxes: Sequence[Box], most: int = MOST_BOXES) -> list[Box]:
    """At most so many boxes, which hold all that these hold; sorted by stream, like these.

    >>> few_boxes([Box(0, 0, 5, 9, 1, 2), Box(3, 3, 2, 6, 1, 4), Box(4, 4, 1, 1, 3, 3)], 2)[0]
    Box(first_stream=0, last_stream=3, low=2, high=9, since_ms=1, until_ms=4)
    """
    size = -(-len(boxes) // most)
    return [_around(boxes[first : first + size]) for first in range(0, len(boxes), size)]


def _around(boxes: Sequence[Box]) -> Box:
    return Box(
        first_stream=boxes[0].first_stream,
        last_stream=boxes[-1].last_stream,
        low=min(box.low for box in boxes),
        high=max(box.high for box in boxes),
        since_ms=min(box.since_ms for box in boxes),
        until_ms=max(box.until_ms for box in boxes),
    )


def _is_in(box: Box) -> Column:
    return (
        f.col("stream").between(box.first_stream, box.last_stream)
        & f.col("first_offset").between(box.low, box.high)
        & f.col("opened_at").between(box.since_ms, box.until_ms)
    )


def _is_other(topic_id: str) -> Column:
    return f.col("topic_id").isNull() | (f.col("topic_id") != topic_id)
