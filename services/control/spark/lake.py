"""The job `lake`: finished sessions from Kafka into the Delta table `<lake>/sessions`, each once.

A structured stream with the available-now trigger: Spark's checkpoint records the offsets of every batch
before the batch is written, so after a kill the next run repeats exactly the last batch. A batch is merged by
session id under Delta's transaction id (stream, batch). So neither a repeated batch nor a duplicate of
`at_least_once` changes the table.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from services.control.spark.delivered import NUMBERS, TEXTS, read_session
from services.control.spark.delta import NO_TABLE, newest_version
from services.control.spark.kafka_client import source_options
from services.control.spark.request import Result, RunRequest

BATCH_RECORDS = 50_000
"""Most records of one batch, which is one commit of the table."""
MOST_DAYS = 400
"""With more days in one batch, the merge scans the whole group instead of listing each day."""

_NUMBER_COLUMNS = ", ".join(f"`{name}` LONG" for name in NUMBERS)
_TEXT_COLUMNS = ", ".join(f"`{name}` STRING" for name in TEXTS)
PARSED_SCHEMA = f"{_TEXT_COLUMNS}, {_NUMBER_COLUMNS}, `data` ARRAY<STRING>"
"""A session as the table holds it (times in ms UTC; `data`: the fragments' JSON as it was posted)."""
_PARSED = pa.schema(
    [
        *((name, pa.string()) for name in TEXTS),
        *((name, pa.int64()) for name in NUMBERS),
        ("data", pa.list_(pa.string())),
    ]
)


def lake(spark: SparkSession, request: RunRequest) -> Result:
    """Brings the table up to the topic's present end. Returns what was added, and what the table holds.

    Raises what Spark raises; the next run continues where this one stopped.
    """
    table = request.table("sessions")
    before = newest_version(spark, table)
    if before == NO_TABLE:
        create_sessions_table(spark, table)
    records = (
        spark.readStream.format("kafka")
        .options(**source_options(request.kafka))
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", request.names.sessions(request.group))
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", BATCH_RECORDS)
        .option("failOnDataLoss", "true")
        .load()
    )
    application = _application(request)

    def merge(batch: DataFrame, number: int) -> None:
        merge_batch(batch, number, table=table, group=request.group, application=application)

    query = (
        records.select("value")
        .writeStream.foreachBatch(merge)
        .option("checkpointLocation", request.table("_checkpoints", f"sessions.{request.group}"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return _result(spark, request, table, before) | {"batches": len(query.recentProgress)}


def create_sessions_table(spark: SparkSession, table: str) -> None:
    """Creates the empty table if it is missing, partitioned by group and by day of first_time (UTC)."""
    spark.sql(
        f"CREATE TABLE IF NOT EXISTS delta.`{table}` ({PARSED_SCHEMA}, `day` DATE) "
        "USING delta PARTITIONED BY (`group`, `day`)"
    )


def merge_batch(batch: DataFrame, number: int, *, table: str, group: str, application: str) -> None:
    """Inserts the sessions of the batch that the table does not hold yet, in one commit.

    Repeating a batch `number` of the same `application` is a no-op.
    """
    spark = batch.sparkSession
    parsed = batch.mapInArrow(parse_rows, PARSED_SCHEMA).dropDuplicates(["id"])
    source = parsed.selectExpr("*", "date(timestamp_millis(first_time)) AS day").persist()
    try:
        days = [str(row.day) for row in source.select("day").distinct().limit(MOST_DAYS + 1).collect()]
        # with the days as constants, Delta skips the partitions that cannot hold the batch's sessions
        where = [f"t.`group` = '{group}'", "t.`day` = s.`day`", "t.`id` = s.`id`"]
        if len(days) <= MOST_DAYS:
            constants = ", ".join(f"DATE '{day}'" for day in sorted(days))
            where.append(f"t.`day` IN ({constants or 'NULL'})")
        spark.conf.set("spark.databricks.delta.write.txnAppId", application)
        spark.conf.set("spark.databricks.delta.write.txnVersion", str(number))
        source.createOrReplaceTempView("arrived")
        spark.sql(
            f"MERGE INTO delta.`{table}` t USING arrived s ON {' AND '.join(where)} "
            "WHEN NOT MATCHED THEN INSERT *"
        )
    finally:
        spark.conf.unset("spark.databricks.delta.write.txnAppId")
        spark.conf.unset("spark.databricks.delta.write.txnVersion")
        source.unpersist()


def parse_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Record values as rows of PARSED_SCHEMA. Raises NotASession: the topic must hold nothing else."""
    for batch in batches:
        rows = []
        for value in batch.column(0):
            fields, fragments = read_session(value.as_py() or b"")
            rows.append([fields[name] for name in (*TEXTS, *NUMBERS)] + [fragments])
        columns = zip(*rows, strict=True) if rows else ([] for _ in _PARSED)
        arrays = [
            pa.array(list(column), type=field.type) for column, field in zip(columns, _PARSED, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=_PARSED)


def _application(request: RunRequest) -> str:
    """Delta's transaction id for the stream: one per topic and checkpoint."""
    source = f"{request.names.sessions(request.group)}\n{request.kafka}"
    return f"baton-lake-{request.group}-{hashlib.blake2b(source.encode(), digest_size=6).hexdigest()}"


def _result(spark: SparkSession, request: RunRequest, table: str, before: int) -> Result:
    sums = (
        spark.read.format("delta")
        .load(table)
        .where(f"`group` = '{request.group}'")
        .selectExpr("count(*) AS sessions", "sum(fragments) AS fragments", "sum(bytes) AS bytes")
        .first()
    )
    version = newest_version(spark, table)
    return {
        "table": table,
        "version": version,
        "commits": version - max(before, 0),
        "sessions": sums.sessions,
        "fragments": sums.fragments or 0,
        "bytes": sums.bytes or 0,
    }
