"""The reports, computed from the rows of the state: each function returns the rows of one table.

A period is an hour, a day, a week, or the whole `range` of the report. `docs/lake.md` defines every figure.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from services.control.spark.reports.counting import RANK_ERROR, REASONS, SUMS, K, add_up

RANGE = "range"
PERCENTILES = (50, 90, 99)
HEAVIEST = (1, 10, 100)
PAIR = "pair"
MEASURED = {"duration_ms": "duration_sketch", "length": "length_sketch"}


class Range(msgspec.Struct, frozen=True, kw_only=True):
    """What the reports cover: sessions that begin from `start_ms` on and before `end_ms` (UTC)."""

    start_ms: int
    end_ms: int
    zone: str

    def of(self, rows: DataFrame) -> DataFrame:
        """The rows whose `start` is in the range."""
        start, end = (f.timestamp_millis(f.lit(at)) for at in (self.start_ms, self.end_ms))
        return rows.where((f.col("start") >= start) & (f.col("start") < end))

    def local(self, at: Column | str) -> Column:
        """The wall clock of the zone at a time."""
        return f.from_utc_timestamp(at, self.zone)

    def in_periods(self, rows: DataFrame, periods: Sequence[str]) -> DataFrame:
        """Each row once for each period, with the columns `period` and `period_start`."""
        each = [
            f.struct(f.lit(period).alias("period"), self._start_of(period).alias("period_start"))
            for period in periods
        ]
        return rows.select("*", f.inline(f.array(*each)))

    def _start_of(self, period: str) -> Column:
        if period == RANGE:
            return f.timestamp_millis(f.lit(self.start_ms))
        local = self.local("start")
        if period == "hour":
            # in UTC, because a wall clock that is set back shows an hour twice
            past = f.make_dt_interval(f.lit(0), f.lit(0), f.minute(local), f.second(local))
            return f.col("start") - past
        return f.to_utc_timestamp(f.date_trunc(period, local), self.zone)


def visits_by_key(visits: DataFrame, keys: DataFrame, within: Range, periods: Sequence[str]) -> DataFrame:
    """What each key did in each period, and when its first session of all began (`first`).

    A shuffle by key serves the join, and the sums after it.
    """
    firsts = add_up(keys, "keys").withColumnRenamed("start", "first")
    known = within.of(visits).select("key", "start", *SUMS["visits"]).join(firsts, "key")
    return (
        within.in_periods(known, periods)
        .groupBy("period", "period_start", "key")
        .agg(
            *(f.sum(name).alias(name) for name in SUMS["visits"]),
            f.min("start").alias("began"),
            f.min("first").alias("first"),
        )
    )


def period_rows(quarters: DataFrame, by_key: DataFrame, within: Range, periods: Sequence[str]) -> DataFrame:
    """One row for each period that has sessions."""
    named = ["period", "period_start"]
    summed = within.in_periods(within.of(quarters), periods).select(
        *named, *SUMS["quarters"], *MEASURED.values()
    )
    of_keys = by_key.select(
        *named, (f.col("began") == f.col("first")).alias("is_new"), f.col("fragments").alias("of_key")
    )
    # one sum over both kinds of rows instead of a join of their sums
    both = summed.unionByName(of_keys, allowMissingColumns=True)
    sessions, fragments, heaviest = f.col("sessions"), f.col("fragments"), f.col("heaviest")
    return (
        both.groupBy(*named)
        .agg(
            *(f.sum(name).alias(name) for name in SUMS["quarters"]),
            *(f.kll_merge_agg_bigint(name, K).alias(name) for name in MEASURED.values()),
            f.count_if("is_new").alias("keys_new"),
            f.count_if(~f.col("is_new")).alias("keys_returning"),
            f.max_by("of_key", "of_key", max(HEAVIEST)).alias("heaviest"),
        )
        .select(
            *named,
            *("sessions", "fragments", "bytes", "bounces"),
            (f.col("bounces") / sessions).alias("bounce_rate"),
            (f.col("duration_ms") / sessions).alias("duration_ms_mean"),
            *_percentiles("duration_ms"),
            (fragments / sessions).alias("length_mean"),
            *_percentiles("length"),
            f.when(sessions <= K, 0.0).otherwise(RANK_ERROR).alias("rank_error"),
            *(f"ended_{reason}" for reason in REASONS),
            *("keys_new", "keys_returning"),
            *((_sum_of_first(n, heaviest) / fragments).alias(f"share_top{n}") for n in HEAVIEST),
        )
    )


def list_rows(steps: DataFrame, within: Range, periods: Sequence[str], top: int) -> DataFrame:
    """The top lists of each period and path, by `position`.

    `any`, `entry` and `exit`: the most frequent items, anywhere or as the first or last one of a session.
    PAIR: the most frequent pairs of items that follow each other in a session.
    """
    # a step counts for its item, and for its pair if there is one
    item = "named_struct('pair', false, 'next', CAST(NULL AS STRING))"
    pair = "named_struct('pair', true, 'next', next)"
    each = within.of(steps).selectExpr(
        *("path", "start", "item", *SUMS["steps"], "if(next IS NULL, fragments, 0L) AS exits"),
        f"inline(if(next IS NULL, array({item}), array({item}, {pair})))",
    )
    named = ["period_start", "period", "path"]
    counted = (
        within.in_periods(each, periods)
        .groupBy(*named, "item", "pair", "next")
        .agg(*(f.sum(name).alias(name) for name in (*SUMS["steps"], "exits")))
    )
    of_pair = _at(PAIR, "fragments", "sessions")
    of_item = ", ".join([_at("any", "fragments", "sessions"), _at("entry", "entries"), _at("exit", "exits")])
    listed = counted.selectExpr(
        *named, "item", "next", f"inline(if(pair, array({of_pair}), array({of_item})))"
    ).where("count > 0")
    # Spark sorts by the first column fastest if that is a number and not always the same
    order = [f.desc("count"), f.col("item"), f.col("next")]
    return top_of(listed, [*named, "position"], order, top)


def retention_rows(by_key: DataFrame, within: Range) -> DataFrame:
    """Of the keys whose first session of all was on a day of the range, how many were there n days later."""
    first_day = f.to_date(within.local("first"))
    later = f.date_diff(f.to_date(within.local("period_start")), first_day)
    since = f.timestamp_millis(f.lit(within.start_ms))
    counted = (
        by_key.where((f.col("period") == "day") & (f.col("first") >= since))
        .groupBy(first_day.alias("first_day"), later.alias("days_later"))
        .agg(f.count("*").alias("returned"))
    )
    on_first_day = f.when(f.col("days_later") == 0, f.col("returned"))
    return counted.withColumn("keys", f.max(on_first_day).over(Window.partitionBy("first_day"))).select(
        *("first_day", "days_later", "keys", "returned"),
        (f.col("returned") / f.col("keys")).alias("share"),
    )


def key_rows(by_key: DataFrame) -> DataFrame:
    """The totals of each key in the range. `first_start`: quarter of its first session of all."""
    return by_key.where(f.col("period") == RANGE).select(
        "key", *SUMS["visits"], f.col("first").alias("first_start")
    )


def _percentiles(name: str) -> list[Column]:
    """Their values, each an element of the data: the least one whose rank reaches the percentage."""
    sketch = MEASURED[name]
    return [
        f.kll_sketch_get_quantile_bigint(sketch, f.lit(p / 100)).alias(f"{name}_p{p}") for p in PERCENTILES
    ]


def _at(position: str, count: str, sessions: str = "") -> str:
    return f"named_struct('position', '{position}', 'count', {count}, 'sessions', {sessions or count})"


def _sum_of_first(most: int, numbers: Column) -> Column:
    return f.aggregate(f.slice(numbers, 1, most), f.lit(0).cast("bigint"), lambda total, one: total + one)


def top_of(rows: DataFrame, within: Sequence[str], order: Sequence[Column], most: int) -> DataFrame:
    """The first rows of each group, with their `place`; every task drops what cannot be among them."""
    place = f.row_number().over(Window.partitionBy(*within).orderBy(*order))
    return rows.withColumn("place", place).where(f.col("place") <= most)
