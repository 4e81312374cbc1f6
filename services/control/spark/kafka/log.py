"""Reads Kafka's topics as batches between offsets that are fixed beforehand.

Asks the broker through the Kafka client that is already in Spark's JVM. Offsets are fixed once, so a plan
that Spark evaluates twice reads the same records. `end - start` does not count records: transactions leave
gaps.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from services.control.spark.kafka.client import client_options, source_options
from shared.errors import KafkaDenied, KafkaUnavailable, NotFound
from shared.kafka.connect.access import Kafka, access_of

Partition = tuple[str, int]
RECORD_SCHEMA = "topic STRING, partition INT, offset BIGINT, appended BIGINT, key BINARY, value BINARY"
"""What `read_log` returns; `appended`: Kafka's time of the record (ms UTC)."""
OPEN_TRANSACTION_TIMEOUT_S = 60.0
"""Longer than a stream's transaction can stay open before the broker aborts it (10–15 s)."""
_POLL_S = 0.1
_DENIED = ("SslAuthentication", "SaslAuthentication", "AuthorizationException")


def topic_partitions(spark: SparkSession, kafka: Kafka, topics: Iterable[str]) -> list[Partition]:
    """Every partition of the topics. Raises NotFound if one does not exist, KafkaUnavailable."""
    names = list(topics)
    with _admin(spark, kafka) as admin:
        found = admin.describeTopics(_java_list(spark, names)).allTopicNames().get()
    return [(name, number) for name in names for number in range(found[name].partitions().size())]


def offsets(
    spark: SparkSession,
    kafka: Kafka,
    partitions: Iterable[Partition],
    at: Literal["start", "end", "stable"] | int,
) -> dict[Partition, int]:
    """The first offset of each partition, its end, or its stable end: the end for `read_committed`.

    If `at` is a time (ms): the first offset that is not older, or -1 if all are older.
    """
    kafka_admin = spark._jvm.org.apache.kafka.clients.admin
    common = spark._jvm.org.apache.kafka.common
    if isinstance(at, int):
        spec = kafka_admin.OffsetSpec.forTimestamp(at)
    else:
        spec = kafka_admin.OffsetSpec.earliest() if at == "start" else kafka_admin.OffsetSpec.latest()
    isolation = common.IsolationLevel
    options = kafka_admin.ListOffsetsOptions(
        isolation.READ_COMMITTED if at == "stable" else isolation.READ_UNCOMMITTED
    )
    wanted = {partition: common.TopicPartition(*partition) for partition in partitions}
    asked = spark._jvm.java.util.HashMap()
    for key in wanted.values():
        asked.put(key, spec)
    with _admin(spark, kafka) as admin:
        found = admin.listOffsets(asked, options).all().get()
        return {partition: int(found.get(key).offset()) for partition, key in wanted.items()}


def settled_end(spark: SparkSession, kafka: Kafka, partitions: Iterable[Partition]) -> dict[Partition, int]:
    """The stable ends, after every transaction that is open now has ended.

    Until then, a commit that a head already counts may be invisible, because another stream's open
    transaction precedes it in the partition. Raises KafkaUnavailable when a transaction stays open.
    """
    partitions = list(partitions)
    ends = offsets(spark, kafka, partitions, "end")
    deadline = time.monotonic() + OPEN_TRANSACTION_TIMEOUT_S
    while True:
        stable = offsets(spark, kafka, partitions, "stable")
        if all(stable[partition] >= ends[partition] for partition in partitions):
            return stable
        if time.monotonic() > deadline:
            raise KafkaUnavailable("an open transaction holds back the sessions topic")
        time.sleep(_POLL_S)


def topic_id(spark: SparkSession, kafka: Kafka, topic: str) -> str:
    """Kafka's id of the topic, which changes if it is created again. Raises NotFound, KafkaUnavailable."""
    with _admin(spark, kafka) as admin:
        found = admin.describeTopics(_java_list(spark, [topic])).allTopicNames().get()
        return str(found[topic].topicId().toString())


def read_log(
    spark: SparkSession,
    kafka: Kafka,
    start: Mapping[Partition, int],
    end: Mapping[Partition, int],
    *,
    fail_on_loss: bool = True,
) -> DataFrame:
    """The committed records from `start` up to `end`: topic, partition, offset, appended (ms), key, value.

    Each partition is read by one task, in the order of its offsets. Without `fail_on_loss`, records that
    retention removes meanwhile are left out: to notice that, ask for the start again after reading.
    """
    records = (
        spark.read.format("kafka")
        .options(**source_options(kafka))
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", ",".join(sorted({topic for topic, _ in start})))
        .option("startingOffsets", _by_topic(start))
        .option("endingOffsets", _by_topic(end))
        .option("failOnDataLoss", str(fail_on_loss).lower())
        .load()
    )
    return records.selectExpr(
        "topic", "partition", "offset", "unix_millis(timestamp) AS appended", "key", "value"
    )


def _by_topic(offsets: Mapping[Partition, int]) -> str:
    topics: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        topics.setdefault(topic, {})[str(partition)] = offset
    return json.dumps(topics)


@contextlib.contextmanager
def _admin(spark: SparkSession, kafka: Kafka) -> Iterator[Any]:
    """Kafka's admin client in Spark's JVM. Translates its errors into ours."""
    properties = spark._jvm.java.util.Properties()
    for name, value in client_options(kafka).items():
        properties.put(name, value)
    admin = None
    try:
        admin = spark._jvm.org.apache.kafka.clients.admin.AdminClient.create(properties)
        yield admin
    except (PySparkException, Py4JJavaError) as error:
        what = str(error)
        if "UnknownTopicOrPartition" in what:
            raise NotFound(f"a topic does not exist: {_first_line(what)}") from None
        if any(word in what for word in _DENIED):
            raise KafkaDenied("Kafka does not let the job in", cause=_first_line(what)) from None
        at = access_of(kafka).bootstrap
        raise KafkaUnavailable(f"Kafka at {at} does not answer: {_first_line(what)}") from None
    finally:
        if admin is not None:
            admin.close()


def _first_line(text: str) -> str:
    lines = [line for line in text.splitlines() if "Exception" in line] or [text]
    return lines[0].strip()[:300]


def _java_list(spark: SparkSession, items: Iterable[str]) -> Any:
    result = spark._jvm.java.util.ArrayList()
    for item in items:
        result.add(item)
    return result
