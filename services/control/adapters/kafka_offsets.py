"""First and next offsets of every stream, and the heads of every group, from Kafka.

Keeps one admin client and one consumer, which is assigned to all streams and reads none of them (asking
for offsets of partitions that are not assigned takes aiokafka 20 s). Any failure throws both away.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from typing import Self

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from services.control.core.observed import Offsets
from shared.errors import KafkaUnavailable
from shared.kafka import CALL_TIMEOUT_S, KAFKA_FAILURES, admin_client, read_heads
from shared.names import Names

CLOSE_TIMEOUT_S = 2.0
READS_PER_FIRST = 10
"""First offsets move only by retention, so they are asked for in every tenth reading."""


class KafkaOffsets:
    """An `OffsetSource`; an async context manager that closes its clients."""

    def __init__(self, kafka: str, names: Names) -> None:
        self._kafka = kafka
        self._names = names
        self._clients = contextlib.AsyncExitStack()
        self._admin: AIOKafkaAdminClient | None = None
        self._consumer: AIOKafkaConsumer | None = None
        self._count = 0
        self._first: Mapping[int, int] = {}
        self._reads = 0

    def __repr__(self) -> str:
        return f"<KafkaOffsets of {self._count} streams at {self._kafka}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._clients.aclose()

    async def read(self, count: int, groups: Iterable[str]) -> Offsets:
        """Offsets of streams 0 … count - 1, and their heads in each group.

        Raises KafkaUnavailable; InvalidInput when a committed offset carries no head.
        """
        if count == 0:
            return Offsets()
        try:
            admin, consumer = await self._started(count)
            # the heads first: a position read later might lie above an end read before it
            heads = {group: await read_heads(admin, self._names, group, range(count)) for group in groups}
            partitions = [TopicPartition(self._names.fragments(n), 0) for n in range(count)]
            async with asyncio.timeout(CALL_TIMEOUT_S):
                end = await consumer.end_offsets(partitions)
                if self._reads % READS_PER_FIRST == 0:
                    first = await consumer.beginning_offsets(partitions)
                    self._first = {n: first[partition] for n, partition in enumerate(partitions)}
        except KAFKA_FAILURES as error:
            await self._drop()
            raise KafkaUnavailable(f"offsets cannot be read: {error!r}") from None
        except BaseException:
            await self._drop()
            raise
        self._reads += 1
        return Offsets(first=self._first, end={n: end[p] for n, p in enumerate(partitions)}, heads=heads)

    async def _started(self, count: int) -> tuple[AIOKafkaAdminClient, AIOKafkaConsumer]:
        if self._admin is None or self._consumer is None or count != self._count:
            await self._drop()
            self._admin = await self._clients.enter_async_context(admin_client(self._kafka))
            self._consumer = AIOKafkaConsumer(
                bootstrap_servers=self._kafka,
                group_id=None,
                enable_auto_commit=False,
                request_timeout_ms=int(CALL_TIMEOUT_S * 1000),
            )
            self._clients.push_async_callback(_stop, self._consumer)
            async with asyncio.timeout(CALL_TIMEOUT_S):
                await self._consumer.start()
            partitions = [TopicPartition(self._names.fragments(n), 0) for n in range(count)]
            self._consumer.assign(partitions)
            self._consumer.pause(*partitions)
            self._count = count
        return self._admin, self._consumer

    async def _drop(self) -> None:
        self._admin = self._consumer = None
        self._reads = 0
        await self._clients.aclose()


async def _stop(consumer: AIOKafkaConsumer) -> None:
    with contextlib.suppress(*KAFKA_FAILURES):
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            await consumer.stop()
