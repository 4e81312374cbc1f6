"""First and end offsets of many partitions at once, from one consumer that reads none of them.

aiokafka needs 20 s for the offsets of a topic of which no partition is assigned; one assigned partition per
topic is enough. The member's watchdog, the sinks of new streams and control's view use it. After a failure
the consumer is discarded, and the next call creates a new one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from aiokafka import AIOKafkaConsumer, TopicPartition

from shared.errors import KafkaUnavailable
from shared.kafka.clients import CALL_TIMEOUT_S, discard_consumer, started_consumer, translated


class LogBounds:
    """Reads offsets; call `close` at the end. With `is_stable` the end is the last stable offset."""

    def __init__(self, kafka: str, *, is_stable: bool = False) -> None:
        self._kafka = kafka
        self._isolation_level = "read_committed" if is_stable else "read_uncommitted"
        self._consumer: AIOKafkaConsumer | None = None
        self._topics: frozenset[str] = frozenset()
        self._lock = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<LogBounds of {len(self._topics)} topics at {self._kafka}>"

    async def ends(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """The next offset to be written to each partition. Raises KafkaUnavailable."""
        return await self._ask(partitions, "end_offsets")

    async def firsts(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset that retention has kept in each partition. Raises KafkaUnavailable."""
        return await self._ask(partitions, "beginning_offsets")

    async def bounds(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """The half-open range of offsets of each partition. Raises KafkaUnavailable."""
        firsts, ends = await self.firsts(partitions), await self.ends(partitions)
        return {partition: (firsts[partition], ends[partition]) for partition in partitions}

    async def close(self) -> None:
        """Discards the consumer; never raises or hangs."""
        await self._drop(self._consumer)

    async def _ask(self, partitions: Sequence[TopicPartition], what: str) -> dict[TopicPartition, int]:
        consumer = None
        try:
            with translated("offsets cannot be read"):
                async with asyncio.timeout(CALL_TIMEOUT_S):
                    consumer = await self._started(frozenset(partition.topic for partition in partitions))
                    found: dict[TopicPartition, int] = await getattr(consumer, what)(partitions)
        except KafkaUnavailable:
            await self._drop(consumer)
            raise
        return found

    async def _drop(self, consumer: AIOKafkaConsumer | None) -> None:
        if consumer is None:
            return
        if consumer is self._consumer:  # else a concurrent call has replaced it already
            self._consumer, self._topics = None, frozenset()
        await discard_consumer(consumer)

    async def _started(self, topics: frozenset[str]) -> AIOKafkaConsumer:
        async with self._lock:
            if self._consumer is None:
                self._consumer = await started_consumer(
                    self._kafka,
                    isolation_level=self._isolation_level,
                    consumer_timeout_ms=60_000,  # it never fetches anything
                )
                self._topics = frozenset()
            consumer = self._consumer
            # topics are only added: their metadata is the expensive part
            if not topics <= self._topics:
                self._topics |= topics
                assigned = [TopicPartition(topic, 0) for topic in sorted(self._topics)]
                consumer.assign(assigned)
                for partition in assigned:
                    consumer.seek(partition, 0)  # any position, so that aiokafka does not look one up
                consumer.pause(*assigned)
            return consumer
