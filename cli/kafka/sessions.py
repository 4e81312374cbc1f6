"""Reads a topic of finished sessions to its end, as `read_committed` consumers see it.

The demo and the end-to-end tests use it to compare what was delivered with what should have been. Memory is
bounded: sessions come in batches, in the order of each partition.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from aiokafka import AIOKafkaConsumer, TopicPartition

from shared.errors import KafkaUnavailable
from shared.kafka.clients import CALL_TIMEOUT_S, KAFKA_FAILURES, discard_consumer
from shared.kafka.topics import MAX_RECORD_BYTES, count_partitions
from shared.model.sessions import Session, parse_session

FETCH_WAIT_MS = 500
STALL_S = 30.0
"""Longest wait for the next records before the end; an open transaction holds readers back."""


async def read_sessions(kafka: str, topic: str) -> AsyncIterator[list[Session]]:
    """Every session from the topic's start to its current end, batch by batch.

    Raises KafkaUnavailable, also when there is no such topic or no record arrives for STALL_S seconds;
    msgspec.DecodeError on a record that is not a session.
    """
    partitions = [TopicPartition(topic, n) for n in range(await count_partitions(kafka, topic))]
    consumer = AIOKafkaConsumer(
        bootstrap_servers=kafka,
        group_id=None,
        enable_auto_commit=False,
        # a session of an aborted transaction was never delivered
        isolation_level="read_committed",
        fetch_max_wait_ms=FETCH_WAIT_MS,
        max_partition_fetch_bytes=2 * MAX_RECORD_BYTES,
    )
    try:
        async with asyncio.timeout(CALL_TIMEOUT_S):
            await consumer.start()
            consumer.assign(partitions)
            first = await consumer.beginning_offsets(partitions)
            ends = await consumer.end_offsets(partitions)
        # explicitly: without a group aiokafka would begin at the end
        for partition in partitions:
            consumer.seek(partition, first[partition])
        async for batch in _batches(consumer, ends):
            yield batch
    except KAFKA_FAILURES as error:
        raise KafkaUnavailable(f"{topic} cannot be read: {error!r}") from None
    finally:
        await discard_consumer(consumer)


async def _batches(
    consumer: AIOKafkaConsumer, ends: dict[TopicPartition, int]
) -> AsyncIterator[list[Session]]:
    # by position, not by the last record: the last offset usually belongs to the end of a transaction
    left = set(ends)
    while left := {partition for partition in left if await consumer.position(partition) < ends[partition]}:
        async with asyncio.timeout(STALL_S):
            found = await _next(consumer, left)
        if found:
            yield found


async def _next(consumer: AIOKafkaConsumer, left: set[TopicPartition]) -> list[Session]:
    """The next sessions; none when only transaction markers were left."""
    # the end of a transaction takes an offset: it moves the position, but is not returned as a record
    before = {partition: await consumer.position(partition) for partition in left}
    while True:
        found = await consumer.getmany(timeout_ms=FETCH_WAIT_MS)
        sessions = [parse_session(record.value) for records in found.values() for record in records]
        if sessions or before != {partition: await consumer.position(partition) for partition in left}:
            return sessions
