"""First and next offsets of all streams at once: one consumer, assigned to all and reading none.

Asking aiokafka for offsets of partitions that are not assigned takes 20 s. The member's watchdog and
control's view use it; any failure throws the consumer away, and the next call makes a new one.
"""

from __future__ import annotations

import asyncio
import contextlib

from aiokafka import AIOKafkaConsumer, TopicPartition

from shared.errors import KafkaUnavailable
from shared.kafka import CALL_TIMEOUT_S, KAFKA_FAILURES
from shared.names import Names


class LogBounds:
    """Offsets of the fragments topics of streams 0 … count - 1."""

    def __init__(self, kafka: str, names: Names) -> None:
        self._kafka = kafka
        self._names = names
        self._consumer: AIOKafkaConsumer | None = None
        self._partitions: list[TopicPartition] = []

    def __repr__(self) -> str:
        return f"<LogBounds of {len(self._partitions)} streams at {self._kafka}>"

    async def ends(self, count: int) -> dict[int, int]:
        """The next offset to be written, by stream. Raises KafkaUnavailable."""
        return await self._ask(count, "end_offsets")

    async def firsts(self, count: int) -> dict[int, int]:
        """The first offset that retention has left, by stream. Raises KafkaUnavailable."""
        return await self._ask(count, "beginning_offsets")

    async def close(self) -> None:
        """Lets go of the consumer; never raises, never hangs."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            with contextlib.suppress(*KAFKA_FAILURES):
                async with asyncio.timeout(2):
                    await consumer.stop()

    async def _ask(self, count: int, what: str) -> dict[int, int]:
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                consumer = await self._started(count)
                found = await getattr(consumer, what)(self._partitions)
        except KAFKA_FAILURES as error:
            await self.close()
            raise KafkaUnavailable(f"offsets cannot be read: {error!r}") from None
        except BaseException:
            await self.close()
            raise
        return {stream: found[partition] for stream, partition in enumerate(self._partitions)}

    async def _started(self, count: int) -> AIOKafkaConsumer:
        if self._consumer is not None and len(self._partitions) == count:
            return self._consumer
        await self.close()
        consumer = self._consumer = AIOKafkaConsumer(
            bootstrap_servers=self._kafka,
            group_id=None,
            enable_auto_commit=False,
            request_timeout_ms=int(CALL_TIMEOUT_S * 1000),
        )
        await consumer.start()
        self._partitions = [TopicPartition(self._names.fragments(n), 0) for n in range(count)]
        consumer.assign(self._partitions)
        consumer.pause(*self._partitions)
        return consumer
