"""The aiokafka producer of the fragment sink: how it is set up, and what it knows of its topics.

Idempotent, without lingering (the sink's batches gather by themselves), and with the metadata of all topics
loaded before the first record. Used by `sink.py`, which decides when to have another one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Sequence

from aiokafka import AIOKafkaProducer, TopicPartition

from services.producer.kafka.produce import produce_quickly
from shared.errors import KafkaUnavailable
from shared.kafka.clients import KAFKA_FAILURES, discard_producer

NEW_TOPICS_S, NEW_TOPICS_POLL_S = 2.0, 0.05
"""How long a broker may take to tell of topics that it has made, and how often it is asked."""


async def connected_producer(
    kafka: str,
    topics: Sequence[str],
    expected: Collection[str],
    *,
    ack_timeout_s: float,
    max_batch_bytes: int,
    compression: str | None,
) -> AIOKafkaProducer:
    """A producer that is ready for `topics`, of which the `expected` are waited for a little.

    Raises KafkaUnavailable after `ack_timeout_s`.
    """
    produce_quickly()
    producer = AIOKafkaProducer(
        bootstrap_servers=kafka,
        acks="all",
        enable_idempotence=True,
        linger_ms=0,
        max_batch_size=max_batch_bytes,
        compression_type=compression,
        # above our own bound: the sink's watchdog decides
        request_timeout_ms=int(ack_timeout_s * 1000) + 1000,
        retry_backoff_ms=20,
    )
    try:
        async with asyncio.timeout(ack_timeout_s):
            await producer.start()
            await _load_metadata(producer, topics, expected, min(NEW_TOPICS_S, ack_timeout_s / 2))
    except KAFKA_FAILURES as error:
        await discard_producer(producer)
        raise KafkaUnavailable(f"Kafka at {kafka} does not answer: {error!r}") from None
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


def look_again(producer: AIOKafkaProducer, topics: Sequence[str]) -> None:
    """Lets the producer ask for these topics, soon."""
    producer.client.set_topics(topics)
    producer.client.force_metadata_update()


async def _load_metadata(
    producer: AIOKafkaProducer, topics: Sequence[str], expected: Collection[str], within_s: float
) -> None:
    """One request for all topics, instead of one each at its first record."""
    deadline_s = time.monotonic() + within_s
    await producer.client.set_topics(topics)
    while not all(has_topic(producer, topic) for topic in expected) and time.monotonic() < deadline_s:
        await asyncio.sleep(NEW_TOPICS_POLL_S)
        await producer.client.force_metadata_update()
