"""The fragment sink's aiokafka producer: how it is configured, and what it knows about its topics.

It is idempotent, does not linger (the sink collects batches itself), and has the metadata of all topics
before the first record. Used by `sink.py`, which decides when to replace it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Sequence

from aiokafka import AIOKafkaProducer, TopicPartition

from services.producer.kafka.produce import produce_quickly
from shared.kafka.clients import discard_producer, translated

NEW_TOPICS_S, NEW_TOPICS_POLL_S = 2.0, 0.05
"""How long a broker may take to list topics that it has just created, and how often we ask."""


async def connected_producer(
    kafka: str,
    topics: Sequence[str],
    expected: Collection[str],
    *,
    ack_timeout_s: float,
    max_batch_bytes: int,
    compression: str | None,
) -> AIOKafkaProducer:
    """A connected producer that has the metadata of `topics`.

    Waits up to 2 s until it knows the `expected` ones. Raises KafkaUnavailable after `ack_timeout_s`.
    """
    produce_quickly()
    producer = AIOKafkaProducer(
        bootstrap_servers=kafka,
        acks="all",
        enable_idempotence=True,
        linger_ms=0,
        max_batch_size=max_batch_bytes,
        compression_type=compression,
        # above our own limit: the sink's watchdog decides
        request_timeout_ms=int(ack_timeout_s * 1000) + 1000,
        retry_backoff_ms=20,
    )
    try:
        with translated("Kafka does not answer", at=kafka):
            async with asyncio.timeout(ack_timeout_s):
                await producer.start()
                await _load_metadata(producer, topics, expected, min(NEW_TOPICS_S, ack_timeout_s / 2))
    except BaseException:
        await discard_producer(producer)
        raise
    return producer


def has_topic(producer: AIOKafkaProducer, topic: str) -> bool:
    """Whether the producer knows the topic."""
    return bool(producer.client.cluster.partitions_for_topic(topic))


def leader_of(producer: AIOKafkaProducer, topic: str) -> int:
    """The node id of the leader of the topic's only partition; -1 where none is known."""
    leader = producer.client.cluster.leader_for_partition(TopicPartition(topic, 0))
    return -1 if leader is None else leader


def refresh_metadata(producer: AIOKafkaProducer, topics: Sequence[str]) -> None:
    """Makes the producer request the metadata of these topics soon; does not wait for it."""
    producer.client.set_topics(topics)
    producer.client.force_metadata_update()


async def _load_metadata(
    producer: AIOKafkaProducer, topics: Sequence[str], expected: Collection[str], within_s: float
) -> None:
    """Loads all topics in one request, instead of one request per topic at its first record."""
    deadline_s = time.monotonic() + within_s
    await producer.client.set_topics(topics)
    while not all(has_topic(producer, topic) for topic in expected) and time.monotonic() < deadline_s:
        await asyncio.sleep(NEW_TOPICS_POLL_S)
        await producer.client.force_metadata_update()
