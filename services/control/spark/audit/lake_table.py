"""The table `sessions` as the audit compares it with the topic: narrow rows, with checksums from Spark.

One checksum of 32 bytes stands for a session's columns and one for its fragments, as in `rows.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from services.control.spark.audit.part import Part
from services.control.spark.audit.rows import SEPARATOR, SUMMED_FIELDS, TABLE
from services.control.spark.audit.verdict import Finding
from services.control.spark.delta import NO_TABLE
from services.control.spark.kafka.log import topic_id
from services.control.spark.lake.checksums import day_sums
from services.control.spark.lake.positions import newest_note, note_of_rows
from services.control.spark.lake.sums import Sums
from services.control.spark.lake.table import LakeTable
from services.control.spark.run.request import RunRequest

PLACE = ("topic_id", "topic_partition", "topic_offset")
"""Columns that say where in the topic a row's session is."""


NOT_NOTED: Final = (
    "the table's history does not say how far the lake has read, so rows that are missing at the end of a "
    "partition are not found: the job `lake` notes it again"
)
NOT_READ: Final = "the job `lake` has not read this sessions topic yet"


class OpenTable(NamedTuple):
    """The rows of the group at one version, or None; `why` they, or some of them, are not compared.

    `position`: by partition of the topic, the offset up to which the lake has read it. `sums`: of the rows
    that the lake has written, or None if it has not noted them.
    """

    rows: DataFrame | None
    position: Mapping[int, int]
    why: str = ""
    sums: Sums | None = None


def open_table(spark: SparkSession, request: RunRequest) -> OpenTable:
    """The table as it is now."""
    table = LakeTable(spark, request.table("sessions"))
    version = table.version()
    if version == NO_TABLE:
        return OpenTable(None, {}, "there is no table yet: the job `lake` writes it")
    every = table.read(version)
    topic = topic_id(spark, request.kafka, request.names.sessions(request.group))
    own_day = f.to_date(f.timestamp_millis("opened_at"))
    rows = every.where(f.col("group") == request.group).withColumns(
        {
            "is_of_topic": f.col("topic_id") == topic,
            "has_own_day": f.col("day").eqNullSafe(own_day),
        }
    )
    # not from the rows: those that somebody deleted must be missing
    note = newest_note(table, version, request.group).note
    if note is None:
        of_rows = note_of_rows(table, version, request.group)
        return OpenTable(rows, of_rows.topics.get(topic, {}), NOT_NOTED)
    position = note.topics.get(topic)
    return OpenTable(rows, position or {}, NOT_READ if position is None else "", note.sums)


def wrong_days(table: OpenTable) -> list[Finding]:
    """A finding for each day or month whose rows are not those that the lake has written."""
    if table.rows is None or table.sums is None:
        return []
    findings = []
    for name, ((rows, _), (wanted, _)) in table.sums.differences(day_sums(table.rows)).items():
        detail = f"{name}: {rows} rows instead of {wanted}"
        if rows == wanted:
            detail = f"{name}: the {rows} rows are not those that the lake has written"
        findings.append(Finding("lake_days", "", -1, "", detail))
    return findings


def table_rows(table: DataFrame, part: Part, from_offset: int) -> DataFrame:
    """The table's rows of this part in ROW_SCHEMA; the body is JSON: id, checksums, place in the topic.

    Leaves out rows whose place in the topic is below `from_offset`.
    """
    rows = table
    if from_offset > 0:
        rows = rows.where(f.col("topic_offset").isNull() | (f.col("topic_offset") >= from_offset))
    if not part.is_every_stream:
        rows = rows.where(f.col("stream").isin(list(part.streams)))
    # null in what somebody has altered
    key = f.coalesce("key", f.lit(""))
    hashed = f.crc32(key.cast("binary"))
    if part.below is not None:
        rows = rows.where(hashed < part.below)
    texts = [f.coalesce(f.col(name).cast("string"), f.lit("null")) for name in SUMMED_FIELDS]
    fragments = f.transform("data", lambda one: f.concat(f.octet_length(one).cast("string"), f.lit(":"), one))
    data = f.concat_ws("", f.transform(fragments, lambda one: f.coalesce(one, f.lit("null"))))
    body = f.struct(
        f.coalesce("id", f.lit("")).alias("id"),
        f.sha2(f.concat_ws(SEPARATOR, *texts).cast("binary"), 256).alias("fields"),
        f.sha2(data.cast("binary"), 256).alias("data"),
        "has_own_day",
        f.when(f.col("is_of_topic"), f.col("topic_partition")).alias("partition"),
        f.when(f.col("is_of_topic"), f.col("topic_offset")).alias("offset"),
    )
    return rows.select(
        hashed.alias("hash"),
        key.alias("key"),
        f.coalesce(f.col("stream").cast("int"), f.lit(-1)).alias("stream"),
        f.coalesce("first_offset", f.lit(-1)).alias("offset"),
        f.lit(TABLE).alias("rank"),
        f.to_json(body).cast("binary").alias("body"),
    )
