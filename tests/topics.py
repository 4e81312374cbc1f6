"""Reads, fills and cuts topics of a real Kafka, as the services' neighbours do."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete

from shared.model.names import Names

READ_TIMEOUT_S = 60.0
Append = Callable[[int, bytes | None, bytes], Awaitable[int]]


@contextlib.asynccontextmanager
async def admin_client(kafka: str) -> AsyncIterator[AIOKafkaAdminClient]:
    """A started admin client, open during the block."""
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    try:
        await admin.start()
        yield admin
    finally:
        await admin.close()


async def records_of(kafka: str, topic: str, partition: int = 0, *, at_least: int = 0) -> list[Any]:
    """All committed records of a partition, once there are at least that many.

    Kafka acknowledges a commit before its markers are in every partition, so records may show a moment later.
    """
    where = TopicPartition(topic, partition)
    async with (
        asyncio.timeout(READ_TIMEOUT_S),
        AIOKafkaConsumer(
            bootstrap_servers=kafka,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            fetch_max_wait_ms=100,
        ) as consumer,
    ):
        consumer.assign([where])
        end = (await consumer.end_offsets([where]))[where]
        found: list[Any] = []
        while await consumer.position(where) < end or len(found) < at_least:
            found += (await consumer.getmany(timeout_ms=200)).get(where, ())
    return found


@contextlib.asynccontextmanager
async def appending(kafka: str, names: Names) -> AsyncIterator[Append]:
    """`append(stream, key, value)` appends a record to a stream and returns its offset."""
    async with AIOKafkaProducer(bootstrap_servers=kafka) as producer:

        async def append(stream: int, key: bytes | None, value: bytes) -> int:
            sent = await producer.send_and_wait(names.fragments(stream), value=value, key=key, partition=0)
            offset: int = sent.offset
            return offset

        yield append


async def delete_below(kafka: str, topic: str, offset: int, *, partition: int = 0) -> None:
    """Deletes the records below the offset, as retention does."""
    async with admin_client(kafka) as admin:
        await admin.delete_records({TopicPartition(topic, partition): RecordsToDelete(before_offset=offset)})
