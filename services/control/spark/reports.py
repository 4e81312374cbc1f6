"""The job `reports`: statistics of the lake's sessions, per hour and day, as Delta tables.

`<lake>/reports/periods` has one row per hour and one per day; `<lake>/reports/items` has the most frequent
items, which a JSON path finds in the fragments: anywhere, first, or last in a session. Both are computed from
one version of the table `sessions`, and each is published by one commit, which replaces the group's rows.
Times are UTC; a session belongs to the hour and day of its first_time.
"""

from __future__ import annotations

import re
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from services.control.spark.delta import NO_TABLE, newest_version
from services.control.spark.request import Result, RunRequest
from shared.errors import InvalidInput, NotFound

ITEM_PATH = "$.data.path"
TOP = 20
MOST_TOP = 10_000
SHOWN_PERIODS = 31
"""Most hours and days in the result, newest first; the table has all of them."""
PERCENTILES = (50, 90, 99)
REASONS = ("end", "gap", "limit")
POSITIONS = {"any": "items", "entry": "entries", "exit": "exits"}
"""Value of the column `position` → name of its rows in the result."""
_PATH = re.compile(r"\$(\.[A-Za-z_][A-Za-z0-9_-]*|\['[^'\]]+'\]|\[[0-9]+\])+")


def reports(spark: SparkSession, request: RunRequest) -> Result:
    """Publishes the reports. Returns their newest and top rows.

    Parameters `item_path` (JSON path into a fragment) and `top` (rows of the item reports).
    Raises InvalidInput for any other parameter, NotFound while the lake has no table.
    """
    item_path, top = check_parameters(request.parameters)
    table = request.table("sessions")
    version = newest_version(spark, table)
    if version == NO_TABLE:
        raise NotFound(f"there are no sessions in {table} yet: run the job `lake` first")
    sessions = (
        spark.read.format("delta")
        .option("versionAsOf", version)
        .load(table)
        .where(f.col("group") == request.group)
    )
    _publish(periods(sessions), request, "periods", version)
    _publish(items(sessions, item_path, top), request, "items", version)
    return {"group": request.group, "sessions_version": version, "item_path": item_path} | _shown(
        spark, request
    )


def check_parameters(parameters: dict[str, Any]) -> tuple[str, int]:
    """The JSON path and the number of top rows. Raises InvalidInput with every fault."""
    item_path, top = parameters.get("item_path", ITEM_PATH), parameters.get("top", TOP)
    faults = [f"there is no parameter {name!r}" for name in sorted(set(parameters) - {"item_path", "top"})]
    if not isinstance(item_path, str) or not _PATH.fullmatch(item_path):
        faults.append(f"item_path {item_path!r} is not a JSON path like {ITEM_PATH}")
    if type(top) is not int or not 1 <= top <= MOST_TOP:
        faults.append(f"top must be 1 … {MOST_TOP}, not {top!r}")
    if faults:
        raise InvalidInput("; ".join(faults))
    return item_path, top


def periods(sessions: DataFrame) -> DataFrame:
    """One row per hour and per day in which a session began; percentiles are exact."""
    began = f.timestamp_millis("first_time")
    timed = sessions.select(
        *("key", "fragments", "bytes", "reason", began.alias("began")),
        (f.col("last_time") - f.col("first_time")).alias("duration_ms"),
        f.min(began).over(Window.partitionBy("key")).alias("key_began"),
        f.explode(f.array(f.lit("hour"), f.lit("day"))).alias("period"),
    )
    # only SQL's date_trunc accepts a column as its unit
    start = f.expr("date_trunc(period, began)")
    is_new = f.expr("date_trunc(period, key_began)") == f.col("start")
    percentiles: list[Column] = [
        f.percentile(value, f.lit(p / 100)).alias(f"{name}_p{p}")
        for value, name in (("duration_ms", "duration_ms"), ("fragments", "length"))
        for p in PERCENTILES
    ]
    ends = [f.count_if(f.col("reason") == reason).alias(f"ended_{reason}") for reason in REASONS]
    return (
        timed.withColumn("start", start)
        .groupBy("period", "start")
        .agg(
            f.count("*").alias("sessions"),
            f.sum("fragments").alias("fragments"),
            f.sum("bytes").alias("bytes"),
            *percentiles,
            *ends,
            f.count_distinct(f.when(is_new, f.col("key"))).alias("keys_new"),
            f.count_distinct(f.when(~is_new, f.col("key"))).alias("keys_returning"),
        )
    )


def items(sessions: DataFrame, item_path: str, top: int) -> DataFrame:
    """The top of all items, and of the first and last ones of sessions (in offset order).

    `count`: fragments with the item for `any`, sessions for `entry` and `exit`. Fragments in which the
    path finds nothing are skipped.
    """
    found = f.transform("data", lambda fragment: f.get_json_object(fragment, item_path))
    of_session = sessions.select("id", f.filter(found, lambda item: item.isNotNull()).alias("items"))
    one = of_session.select("id", "items", f.posexplode("items").alias("at", "item"))
    positions = f.array(
        f.lit("any"),
        f.when(f.col("at") == 0, f.lit("entry")),
        f.when(f.col("at") == f.size("items") - 1, f.lit("exit")),
    )
    each = one.select("id", "item", f.explode(f.array_compact(positions)).alias("position"))
    counted = each.groupBy("position", "item").agg(
        f.count("*").alias("count"), f.count_distinct("id").alias("sessions")
    )
    place = f.row_number().over(Window.partitionBy("position").orderBy(f.desc("count"), "item"))
    return counted.withColumn("place", place).where(f.col("place") <= top)


def _publish(report: DataFrame, request: RunRequest, name: str, version: int) -> None:
    """Replaces the group's rows of the report in one commit; readers see either the old or the new rows."""
    rows = report.select(
        f.lit(request.group).alias("group"), f.lit(version).alias("sessions_version"), "*"
    ).coalesce(1)
    (
        rows.write.format("delta")
        .mode("overwrite")
        .partitionBy("group")
        .option("replaceWhere", f"`group` = '{request.group}'")
        .save(request.table("reports", name))
    )


def _shown(spark: SparkSession, request: RunRequest) -> Result:
    """The newest periods and all top items, from the published tables."""
    tables = {name: request.table("reports", name) for name in ("periods", "items")}
    published = {
        name: spark.read.format("delta")
        .load(path)
        .where(f.col("group") == request.group)
        .drop("group", "sessions_version")
        for name, path in tables.items()
    }
    newest = f.row_number().over(Window.partitionBy("period").orderBy(f.desc("start")))
    shown: Result = {"tables": tables} | {name: [] for name in ("hours", "days", *POSITIONS.values())}
    recent = published["periods"].withColumn("newest", newest).where(f.col("newest") <= SHOWN_PERIODS)
    timed = recent.withColumn("start", f.date_format("start", "yyyy-MM-dd'T'HH:mm:ss'Z'"))
    for row in timed.orderBy("period", "start").drop("newest").collect():
        values = row.asDict()
        shown[values.pop("period") + "s"].append(values)
    for row in published["items"].orderBy("position", "place").collect():
        values = row.asDict()
        shown[POSITIONS[values.pop("position")]].append(values)
    return shown
