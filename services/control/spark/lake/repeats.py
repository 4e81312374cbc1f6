"""Finds the records of a batch whose sessions the table already holds, or that repeat one another.

Used only for batches that may repeat something (`plan.Comparison`). It reads only the column `id` of the
table, in the days of the batch and in files whose first offsets overlap with those of the batch.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from services.control.spark.lake.plan import Comparison

MOST_DAYS: Final = 400
"""With more days in one batch, the whole group is read instead of each day."""
PLACE: Final = ("topic_partition", "topic_offset")


class Repeats(NamedTuple):
    """The places of the records to leave out, and how many sessions, fragments and bytes they hold."""

    places: DataFrame
    counts: tuple[int, int, int]


def find_repeats(
    narrow: DataFrame, table: DataFrame, *, topic_id: str, comparison: Comparison, keeps_days: bool
) -> Repeats:
    """The repeats among `narrow` (NARROW_SCHEMA), against the group's rows in `table`."""
    bounds = narrow.agg(
        f.min("first_offset").alias("low"),
        f.max("first_offset").alias("high"),
        f.collect_set("day").alias("days"),
    ).first()
    assert bounds is not None
    first_of_all = Window.partitionBy("id").orderBy(*PLACE)
    within = (
        narrow.withColumn("place", f.row_number().over(first_of_all))
        .where("place > 1")
        .select(*PLACE, "fragments", "bytes")
    )
    found = within
    if bounds.low is not None:
        held = table.where(f.col("first_offset").between(bounds.low, bounds.high))
        if keeps_days and len(bounds.days) <= MOST_DAYS:
            held = held.where(f.col("day").isin(bounds.days))
        if comparison == "others":
            held = held.where(_is_other(topic_id))
        arrived = f.broadcast(narrow.select("id", *PLACE, "fragments", "bytes"))
        found = within.unionByName(held.select("id").join(arrived, "id").drop("id")).distinct()
    found = found.persist()
    sums = found.agg(
        f.count("*"), f.coalesce(f.sum("fragments"), f.lit(0)), f.coalesce(f.sum("bytes"), f.lit(0))
    )
    row = sums.first()
    assert row is not None
    return Repeats(found, (row[0], row[1], row[2]))


def _is_other(topic_id: str) -> Column:
    return f.col("topic_id").isNull() | (f.col("topic_id") != topic_id)
