"""The reports, computed from the rows of the state: each function returns the rows of one table.

`docs/lake.md` defines every figure.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from services.control.spark.reports.counting import RANK_ERROR, REASONS, SUMS, K, add_up
from services.control.spark.reports.periods import RANGE, Range, Wanted

PERCENTILES = (50, 90, 99)
HEAVIEST = (1, 10, 100)
PAIR = "pair"
MEASURED = {"duration_ms": "duration_sketch", "length": "length_sketch"}


def visits_by_key(
    visits: DataFrame, of_range: DataFrame | None, keys: DataFrame, wanted: Wanted
) -> DataFrame:
    """What each key did in each period, when its first session in it began, and that of all (`first`).

    A shuffle by key serves the join, and the sums after it.
    """
    firsts = add_up(keys, "keys").withColumnRenamed("start", "first")
    return (
        wanted.of(visits, of_range)
        .select("period", "period_start", "start", "key", *SUMS["visits"])
        .join(firsts, "key")
        .groupBy("period", "period_start", "key")
        .agg(
            *(f.sum(name).alias(name) for name in SUMS["visits"]),
            f.min("start").alias("began"),
            f.min("first").alias("first"),
        )
    )


def period_rows(quarters: DataFrame, by_key: DataFrame, wanted: Wanted) -> DataFrame:
    """One row for each period that is computed and has sessions."""
    named = ["period", "period_start"]
    summed = wanted.of(quarters).select(*named, *SUMS["quarters"], *MEASURED.values())
    # sums over the range may be of blocks, and then do not say when a key's first session began
    since = f.timestamp_millis(f.lit(wanted.within.start_ms))
    is_new = f.when(f.col("period") == RANGE, f.col("first") >= since).otherwise(
        f.col("began") == f.col("first")
    )
    of_keys = wanted.only(by_key).select(*named, is_new.alias("is_new"), f.col("fragments").alias("of_key"))
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


def list_rows(steps: DataFrame, of_range: DataFrame | None, wanted: Wanted, top: int) -> DataFrame:
    """The top lists of each period and path, by `position`.

    `any`, `entry` and `exit`: the most frequent items, anywhere or as the first or last one of a session.
    PAIR: the most frequent pairs of items that follow each other in a session.
    """
    # a step counts for its item, and for its pair if there is one
    item = "named_struct('pair', false, 'next', CAST(NULL AS STRING))"
    pair = "named_struct('pair', true, 'next', next)"
    named = ["period_start", "period", "path"]
    counted = (
        wanted.of(steps, of_range)
        .selectExpr(
            *(*named, "item", *SUMS["steps"], "if(next IS NULL, fragments, 0L) AS exits"),
            f"inline(if(next IS NULL, array({item}), array({item}, {pair})))",
        )
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


def retention_rows(by_key: DataFrame, within: Range, kept: DataFrame | None = None) -> DataFrame:
    """Of the keys whose first session of all was on a day of the range, how many were there n days later.

    `kept`: `first_day`, `days_later` and `returned` of the days that are not computed.
    """
    first_day = f.to_date(within.local("first"))
    later = f.date_diff(f.to_date(within.local("period_start")), first_day)
    since = f.timestamp_millis(f.lit(within.start_ms))
    counted = (
        by_key.where((f.col("period") == "day") & (f.col("first") >= since))
        .groupBy(first_day.alias("first_day"), later.alias("days_later"))
        .agg(f.count("*").alias("returned"))
    )
    if kept is not None:
        counted = counted.unionAll(kept)
    # keys may be new to a day whose later days are kept
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
