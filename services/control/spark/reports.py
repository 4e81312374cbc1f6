"""The job `reports`: what the lake's sessions say, per hour and day, as Delta tables.

`<lake>/reports/periods` (one row per hour and one per day), `items`, `entries`, `exits` (the top of
what a JSON path finds in the fragments). All are computed from one version of the table `sessions` and
each is published by one commit that replaces the group's rows. Times are UTC; a session belongs to the
hour and day of its first_time.
"""

from __future__ import annotations

import re
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from services.control.spark.request import Result, RunRequest
from shared.errors import InvalidInput, NotFound

ITEM_PATH = "$.data.path"
TOP = 20
MOST_TOP = 10_000
SHOWN_PERIODS = 31
"""Newest hours and days that stand in the result; the table has all."""
PERCENTILES = (50, 90, 99)
_PATH = re.compile(r"\$(\.[A-Za-z_][A-Za-z0-9_-]*|\['[^'\]]+'\]|\[[0-9]+\])+")


def reports(spark: SparkSession, request: RunRequest) -> Result:
    """Publishes the reports; their newest and top rows.

    Parameters `item_path` (JSON path into a fragment) and `top` (rows of the item reports).
    Raises InvalidInput for others, NotFound while the lake has no table.
    """
    item_path, top = check_parameters(request.parameters)
    table = request.table("sessions")
    version = _version(spark, table)
    sessions = (
        spark.read.format("delta")
        .option("versionAsOf", version)
        .load(table)
        .where(f.col("group") == request.group)
    )
    found = {"periods": periods(sessions)} | item_reports(sessions, item_path, top)
    for name, report in found.items():
        _publish(report, request, name, version)
    return {"group": request.group, "sessions_version": version, "item_path": item_path} | _shown(
        spark, request, found
    )


def check_parameters(parameters: dict[str, Any]) -> tuple[str, int]:
    """The JSON path and the number of top rows. Raises InvalidInput with every fault."""
    item_path, top = parameters.get("item_path", ITEM_PATH), parameters.get("top", TOP)
    faults = [f"there is no parameter {name!r}" for name in sorted(set(parameters) - {"item_path", "top"})]
    if not isinstance(item_path, str) or not _PATH.fullmatch(item_path):
        faults.append(f"item_path {item_path!r} is no JSON path like {ITEM_PATH}")
    if type(top) is not int or not 1 <= top <= MOST_TOP:
        faults.append(f"top must be 1 … {MOST_TOP}, not {top!r}")
    if faults:
        raise InvalidInput("; ".join(faults))
    return item_path, top


def periods(sessions: DataFrame) -> DataFrame:
    """One row per hour and per day in which a session began; percentiles are exact."""
    by_key = Window.partitionBy("key")
    timed = sessions.select(
        "*",
        f.timestamp_millis("first_time").alias("began"),
        (f.col("last_time") - f.col("first_time")).alias("duration_ms"),
        f.min(f.timestamp_millis("first_time")).over(by_key).alias("key_began"),
    )
    each = [_per_period(timed, period) for period in ("hour", "day")]
    return each[0].unionByName(each[1])


def _per_period(timed: DataFrame, period: str) -> DataFrame:
    is_new = f.date_trunc(period, "key_began") == f.date_trunc(period, "began")
    percentiles: list[Column] = [
        f.percentile(value, f.lit(p / 100)).alias(f"{name}_p{p}")
        for value, name in (("duration_ms", "duration_ms"), ("fragments", "length"))
        for p in PERCENTILES
    ]
    ends = [
        f.count_if(f.col("reason") == reason).alias(f"ended_{reason}") for reason in ("end", "gap", "limit")
    ]
    return (
        timed.groupBy(f.date_trunc(period, "began").alias("start"))
        .agg(
            f.count("*").alias("sessions"),
            f.sum("fragments").alias("fragments"),
            f.sum("bytes").alias("bytes"),
            *percentiles,
            *ends,
            f.count_distinct(f.when(is_new, f.col("key"))).alias("keys_new"),
            f.count_distinct(f.when(~is_new, f.col("key"))).alias("keys_returning"),
        )
        .select(f.lit(period).alias("period"), "*")
    )


def item_reports(sessions: DataFrame, item_path: str, top: int) -> dict[str, DataFrame]:
    """The top items, and the top first and last items of sessions; fragments without one do not count."""
    found = sessions.select(
        "id", f.transform("data", lambda fragment: f.get_json_object(fragment, item_path)).alias("all")
    ).select("id", f.filter("all", lambda item: item.isNotNull()).alias("items"))
    items = found.select("id", f.explode("items").alias("item"))
    ranked = items.groupBy("item").agg(f.count("*").alias("n"), f.count_distinct("id").alias("sessions"))
    reports = {"items": ranked}
    for name, position in (("entries", 1), ("exits", -1)):
        one = found.where(f.size("items") > 0).select(f.element_at("items", position).alias("item"))
        count = f.count("*")
        reports[name] = one.groupBy("item").agg(count.alias("n"), count.alias("sessions"))
    return {name: _top(report, top) for name, report in reports.items()}


def _top(report: DataFrame, top: int) -> DataFrame:
    best = report.orderBy(f.desc("n"), "item").limit(top)
    place = f.row_number().over(Window.orderBy(f.desc("n"), "item"))
    return best.select(place.alias("place"), "item", f.col("n").alias("count"), "sessions")


def _publish(report: DataFrame, request: RunRequest, name: str, version: int) -> None:
    """Replaces the group's rows of the report in one commit; readers see the old or the new ones."""
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


def _shown(spark: SparkSession, request: RunRequest, found: dict[str, DataFrame]) -> Result:
    shown: Result = {"tables": {name: request.table("reports", name) for name in found}}
    published = {
        name: spark.read.format("delta").load(path).where(f.col("group") == request.group).drop("group")
        for name, path in shown["tables"].items()
    }
    for period in ("hour", "day"):
        rows = published["periods"].where(f.col("period") == period).drop("period", "sessions_version")
        newest = rows.orderBy(f.desc("start")).limit(SHOWN_PERIODS).orderBy("start")
        timed = newest.withColumn("start", f.date_format("start", "yyyy-MM-dd'T'HH:mm:ss'Z'"))
        shown[f"{period}s"] = [row.asDict() for row in timed.collect()]
    for name in ("items", "entries", "exits"):
        rows = published[name].drop("sessions_version").orderBy("place")
        shown[name] = [row.asDict() for row in rows.collect()]
    return shown


def _version(spark: SparkSession, table: str) -> int:
    """The table's newest version. Raises NotFound when the lake has no table yet."""
    context = spark.sparkContext
    path = context._jvm.org.apache.hadoop.fs.Path(table + "/_delta_log")
    if not path.getFileSystem(context._jsc.hadoopConfiguration()).exists(path):
        raise NotFound(f"there are no sessions in {table} yet: run the job `lake` first")
    return int(spark.sql(f"DESCRIBE HISTORY delta.`{table}` LIMIT 1").first().version)
