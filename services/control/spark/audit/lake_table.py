"""The table `sessions` as the audit compares it with the topic: narrow rows, with checksums from Spark.

One checksum of 32 bytes stands for a session's columns and one for its fragments, as in `rows.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from services.control.spark.audit.part import Part
from services.control.spark.audit.rows import SEPARATOR, SUMMED_FIELDS, TABLE
from services.control.spark.delta import NO_TABLE, newest_version
from services.control.spark.kafka.log import topic_id
from services.control.spark.request import RunRequest

PLACE = ("topic_id", "topic_partition", "topic_offset")
"""Columns that say where in the topic a row's session is; earlier layouts lack them."""


class OpenTable(NamedTuple):
    """The rows of the group at one version, or None and the reason `why` there is nothing to compare.

    `position`: by partition of the topic, the offset after the last one in the table.
    """

    rows: DataFrame | None
    position: Mapping[int, int]
    why: str = ""


def open_table(spark: SparkSession, request: RunRequest) -> OpenTable:
    """The table as it is now."""
    path = request.table("sessions")
    version = newest_version(spark, path)
    if version == NO_TABLE:
        return OpenTable(None, {}, "there is no table yet: the job `lake` writes it")
    table = spark.read.format("delta").option("versionAsOf", version).load(path)
    if not {*PLACE, "log"} <= set(table.columns):
        return OpenTable(None, {}, "the table has an earlier layout: the job `maintain` rewrites it")
    topic = topic_id(spark, request.kafka, request.names.sessions(request.group))
    rows = table.where(f.col("group") == request.group).withColumn("is_of_topic", f.col("topic_id") == topic)
    ends = rows.where("is_of_topic").groupBy("topic_partition").agg(f.max("topic_offset").alias("last"))
    return OpenTable(rows, {row.topic_partition: row.last + 1 for row in ends.collect()})


def table_rows(table: DataFrame, part: Part, from_offset: int) -> DataFrame:
    """The table's rows of this part in ROW_SCHEMA; the body is JSON: id, checksums, place in the topic.

    Leaves out rows whose place in the topic is below `from_offset`.
    """
    rows = table
    if from_offset > 0:
        rows = rows.where(f.col("topic_offset").isNull() | (f.col("topic_offset") >= from_offset))
    if not part.is_every_stream:
        rows = rows.where(f.col("stream").isin(list(part.streams)))
    hashed = f.crc32(f.col("key").cast("binary"))
    if part.below is not None:
        rows = rows.where(hashed < part.below)
    texts = [f.coalesce(f.col(name).cast("string"), f.lit("null")) for name in SUMMED_FIELDS]
    body = f.struct(
        "id",
        f.sha2(f.concat_ws(SEPARATOR, *texts).cast("binary"), 256).alias("fields"),
        f.sha2(f.concat_ws(SEPARATOR, "data").cast("binary"), 256).alias("data"),
        f.when(f.col("is_of_topic"), f.col("topic_partition")).alias("partition"),
        f.when(f.col("is_of_topic"), f.col("topic_offset")).alias("offset"),
    )
    return rows.select(
        hashed.alias("hash"),
        "key",
        f.col("stream").cast("int").alias("stream"),
        f.col("first_offset").alias("offset"),
        f.lit(TABLE).alias("rank"),
        f.to_json(body).cast("binary").alias("body"),
    )
