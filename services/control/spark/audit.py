"""The job `audit`: recomputes all sessions from the fragments in Kafka, and compares them with the delivered.

Reads the heads first, then the delivered sessions, then the fragments, each up to its end at that moment. So
everything below a head's position is visible. Spark does all the work: W and A are prefix maxima per stream,
and the fold runs per key over sorted partitions (`verdict.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from services.control.spark.audit_rows import (
    DELIVERED_SCHEMA,
    FRAGMENT_SCHEMA,
    VERDICT_SCHEMA,
    judge_rows,
    read_delivered_rows,
    read_fragment_rows,
)
from services.control.spark.fold import Cut, Mark
from services.control.spark.kafka_log import Partition, offsets, read_log, settled_end, topic_partitions
from services.control.spark.request import Result, RunRequest
from services.control.spark.verdict import StreamFacts
from shared.kafka.cluster import Cluster
from shared.kafka.groups import KafkaGroup
from shared.kafka.heads import read_heads
from shared.model.head import Head

MOST_EXAMPLES = 20


def audit(spark: SparkSession, request: RunRequest) -> Result:
    """The group's missing, extra and different sessions, and the sums behind them (see `verdict.py`).

    Raises NotFound if the topics do not exist, KafkaUnavailable.
    """
    heads = asyncio.run(_heads(request))
    delivered = _delivered(spark, request)
    start, end = _fragments_range(spark, request)
    fragments = _fragments(spark, request, start, end).persist()
    facts = _facts(request, fragments, heads, start)
    verdicts = _verdicts(spark, request, fragments, delivered, facts).persist()
    try:
        return _result(request, fragments, verdicts, delivered, start)
    finally:
        verdicts.unpersist()
        fragments.unpersist()


async def _heads(request: RunRequest) -> Mapping[int, Head]:
    async with Cluster(request.kafka) as cluster:
        kafka_group = KafkaGroup(cluster, request.names.kafka_group(request.group))
        return (await read_heads(kafka_group, request.names, range(request.streams))).all()


def _delivered(spark: SparkSession, request: RunRequest) -> DataFrame:
    """The sessions topic up to its settled end, in the columns of DELIVERED_SCHEMA."""
    partitions = topic_partitions(spark, request.kafka, [request.names.sessions(request.group)])
    end = settled_end(spark, request.kafka, partitions)
    start = offsets(spark, request.kafka, partitions, "start")
    records = read_log(spark, request.kafka, start, end).select("key", "value")
    return records.mapInArrow(read_delivered_rows, DELIVERED_SCHEMA)


def _fragments_range(
    spark: SparkSession, request: RunRequest
) -> tuple[dict[Partition, int], dict[Partition, int]]:
    topics = [request.names.fragments(stream) for stream in range(request.streams)]
    partitions = topic_partitions(spark, request.kafka, topics)
    start = offsets(spark, request.kafka, partitions, "start")
    return start, offsets(spark, request.kafka, partitions, "stable")


def _fragments(
    spark: SparkSession, request: RunRequest, start: Mapping[Partition, int], end: Mapping[Partition, int]
) -> DataFrame:
    """Every record as it was read, with W before it and A including it (FRAGMENT_SCHEMA, w, a)."""
    future_ms = request.group_settings.future_ms

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return read_fragment_rows(batches, future_ms)

    records = read_log(spark, request.kafka, start, end)
    numbered = records.select(
        f.substring_index("topic", ".", -1).cast("int").alias("stream"), "offset", "appended", "key", "value"
    )
    so_far = Window.partitionBy("stream").orderBy("offset").rowsBetween(Window.unboundedPreceding, 0)
    before = Window.partitionBy("stream").orderBy("offset").rowsBetween(Window.unboundedPreceding, -1)
    return numbered.mapInArrow(read, FRAGMENT_SCHEMA).select(
        "*",
        f.coalesce(f.max("t").over(before), f.lit(-1)).alias("w"),
        f.max("appended").over(so_far).alias("a"),
    )


def _facts(
    request: RunRequest, fragments: DataFrame, heads: Mapping[int, Head], start: Mapping[Partition, int]
) -> dict[int, StreamFacts]:
    """For each stream, the facts that the judgement of its keys needs."""
    rows = fragments.groupBy("stream").agg(
        f.coalesce(f.max("t"), f.lit(-1)).alias("w"),
        f.max("appended").alias("a"),
        f.min_by("appended", "offset").alias("first_a"),
    )
    ends = {row.stream: row for row in rows.collect()}
    marks: dict[int, list[Mark]] = {}
    for row in fragments.where("kind = 'marker'").select("stream", "offset", "time").collect():
        marks.setdefault(row.stream, []).append(Mark(row.offset, row.time))
    facts = {}
    for stream in range(request.streams):
        head, row = heads.get(stream), ends.get(stream)
        first = start[request.names.fragments(stream), 0]
        cut = _cut(row.first_a, first, head, request.group_settings.future_ms) if first and row else None
        facts[stream] = StreamFacts(
            stream=stream,
            position=head.position if head else 0,
            log=head.log if head else 0,
            start=first,
            markers=sorted(marks.get(stream, [])),
            cut=cut,
            w=row.w if row else -1,
            a=row.a if row else -1,
        )
    return facts


def _cut(first_a: int, first: int, head: Head | None, future_ms: int) -> Cut:
    """An upper bound of W before the log's start: append time plus `future_ms`, or the head's W if lower."""
    w_most = first_a + future_ms
    if head is not None and head.safe_offset >= first:
        w_most = min(w_most, head.w)
    return Cut(first_a, w_most)


def _verdicts(
    spark: SparkSession,
    request: RunRequest,
    fragments: DataFrame,
    delivered: DataFrame,
    facts: Mapping[int, StreamFacts],
) -> DataFrame:
    """Findings and sums (VERDICT_SCHEMA) of every key; all rows of a key are in one sorted partition."""
    group, settings = request.group, request.group_settings
    shared_facts = spark.sparkContext.broadcast(facts)

    def judge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return judge_rows(batches, group, settings, shared_facts.value)

    lines = fragments.where("kind = 'fragment'").drop("kind", "time")
    rows = delivered.unionByName(lines, allowMissingColumns=True)
    keyed = rows.repartition(_width(spark), "stream", "key")
    # delivered sessions have no offset, so they sort before the fragments
    in_order = keyed.sortWithinPartitions("stream", "key", f.col("offset").asc_nulls_first())
    columns = ("stream", "key", "offset", "appended", "t", "w", "a", "end", "id", "size", "digest", "session")
    return in_order.select(*columns).mapInArrow(judge, VERDICT_SCHEMA)


def _width(spark: SparkSession) -> int:
    width: int = 2 * spark.sparkContext.defaultParallelism
    return max(width, int(spark.conf.get("spark.sql.shuffle.partitions")))


def _result(
    request: RunRequest,
    fragments: DataFrame,
    verdicts: DataFrame,
    delivered: DataFrame,
    start: Mapping[Partition, int],
) -> Result:
    sums = {row.kind: row.n for row in verdicts.groupBy("kind").agg(f.sum("n").alias("n")).collect()}
    by_kind = fragments.groupBy("kind").agg(f.count("*").alias("n"), f.sum("size").alias("size")).collect()
    counted = {row.kind: row.n for row in by_kind}
    kinds = ("missing", "extra", "different")
    examples = (
        verdicts.where(f.col("kind").isin(*kinds))
        .orderBy(_severity(kinds), "stream", "key", "id", "detail")
        .limit(MOST_EXAMPLES)
        .select("kind", "id", "stream", "key", "detail")
    )
    names = (*kinds, "judged", "delivered", "expected", "not_judged", "open")
    result: dict[str, Any] = {name: int(sums.get(name, 0)) for name in names}
    lost_is_allowed = request.group_settings.delivery == "at_most_once"
    return result | {
        "sound": not (result["extra"] or result["different"] or (result["missing"] and not lost_is_allowed)),
        "delivery": request.group_settings.delivery,
        "examples": [row.asDict() for row in examples.collect()],
        "fragments": counted.get("fragment", 0),
        "bytes": sum(row.size for row in by_kind if row.kind == "fragment"),
        "markers": counted.get("marker", 0),
        "ticks": counted.get("tick", 0),
        "unreadable": counted.get("unreadable", 0),
        "cut_streams": sum(1 for offset in start.values() if offset > 0),
    }


def _severity(kinds: tuple[str, ...]) -> Column:
    return f.array_position(f.lit(list(kinds)), f.col("kind"))
