"""The topics of a log on a real broker, a writer of its fragments, and a reader of what was delivered."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from shared.kafka.topics import checkpoints_topic, ensure_topics, fragments_topics, sessions_topic
from shared.model.names import Names
from tests.log_contract import Append

RETENTION_MS = 604_800_000


async def log_topics(kafka: str, namespace: str) -> Names:
    """The names of a log of two streams, whose topics are made."""
    names = Names(namespace)
    topics = [
        *fragments_topics(names, 2, RETENTION_MS),
        sessions_topic(names, "default", 2, -1),
        checkpoints_topic(names, "default", 2),
    ]
    await ensure_topics(kafka, topics, 1)
    return names


@contextlib.asynccontextmanager
async def appending(kafka: str, names: Names) -> AsyncIterator[Append]:
    """Appends records to streams."""
    async with AIOKafkaProducer(bootstrap_servers=kafka) as producer:

        async def append(stream: int, key: bytes | None, value: bytes) -> int:
            sent = await producer.send_and_wait(names.fragments(stream), value=value, key=key, partition=0)
            offset: int = sent.offset
            return offset

        yield append


async def delivered(kafka: str, names: Names, partition: int, count: int) -> list[bytes]:
    """The first `count` values in a partition of the sessions topic, as a `read_committed` reader sees them.

    A commit is answered before its markers stand in every partition, so they may take a moment to show.
    """
    where = TopicPartition(names.sessions("default"), partition)
    async with AIOKafkaConsumer(
        bootstrap_servers=kafka, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([where])
        found: list[bytes] = []
        async with asyncio.timeout(20):
            while len(found) < count:
                batches = await consumer.getmany(timeout_ms=200)
                found += [record.value for record in batches.get(where, ())]
    return found
