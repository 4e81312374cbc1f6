"""The clients that all streams of a member share, created when first needed and again after a failure.

The fetcher of all streams and the connections behind it, and a producer without transactions (ticks, sessions
of the weaker deliveries). Streams that open at the same time read their heads by one request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from aiokafka import AIOKafkaProducer

from services.consumer.adapters.kafka.coalesce import CoalescedRead
from shared.kafka.access import Kafka, access_of
from shared.kafka.clients import discard_producer, translated
from shared.kafka.cluster import Cluster
from shared.kafka.fetcher import Fetcher
from shared.kafka.groups import KafkaGroup
from shared.kafka.heads import StoredHeads, read_heads
from shared.kafka.offsets import LATEST, Partition, list_offsets
from shared.kafka.topics import MAX_RECORD_BYTES
from shared.model.head import Head
from shared.model.names import Names

START_TIMEOUT_S = 15.0
PRODUCER_OPTIONS = {
    "acks": "all",
    "linger_ms": 0,
    "max_batch_size": 1024 * 1024,
    "max_request_size": MAX_RECORD_BYTES,
    "request_timeout_ms": 10_000,
    "retry_backoff_ms": 10,
}


class SharedClients:
    """The clients of one group in one member; `close` them at the end."""

    def __init__(self, kafka: Kafka, names: Names, group: str) -> None:
        self.kafka, self.names, self.group = kafka, names, group
        self.cluster = Cluster(kafka)
        self.fetcher = Fetcher(self.cluster)
        self._plain: AIOKafkaProducer | None = None
        self._lock = asyncio.Lock()
        self._kafka_group = KafkaGroup(self.cluster, names.kafka_group(group))
        self._heads: CoalescedRead[int, StoredHeads] = CoalescedRead(self._read_heads)
        self._tails = CoalescedRead(self._read_tails)

    def __repr__(self) -> str:
        return f"<SharedClients of {self.group} over {self.cluster!r}>"

    async def head(self, stream: int) -> Head | None:
        """The stream's committed head, if any. Raises KafkaUnavailable; InvalidInput if it is unreadable."""
        return (await self._heads.ask(stream)).of(stream)

    async def checkpoint_tail(self, partition: Partition) -> tuple[int, int]:
        """Of a checkpoints partition, the offset of the first undecided record (its transaction has not
        ended) and the next offset to be written; equal if nothing is undecided. Raises KafkaUnavailable.
        """
        return (await self._tails.ask(partition))[partition]

    async def plain_producer(self) -> AIOKafkaProducer:
        """The producer without a transaction, started. Raises KafkaUnavailable."""
        async with self._lock:
            if self._plain is None:
                servers = access_of(self.kafka).bootstrap
                producer = AIOKafkaProducer(
                    bootstrap_servers=servers, enable_idempotence=True, **PRODUCER_OPTIONS
                )
                try:
                    with translated("the plain producer cannot start"):
                        async with asyncio.timeout(START_TIMEOUT_S):
                            await producer.start()
                except BaseException:
                    await discard_producer(producer)
                    raise
                self._plain = producer
            return self._plain

    async def drop(self, producer: AIOKafkaProducer | None) -> None:
        """Discards the producer after a failure, unless it has been replaced already."""
        async with self._lock:
            if producer is None or producer is not self._plain:
                return
            self._plain = None
        await discard_producer(producer)

    async def close(self) -> None:
        """Closes all clients; never raises, never hangs."""
        await self.fetcher.close()
        await self.cluster.close()
        await self.drop(self._plain)

    async def _read_tails(self, partitions: Sequence[Partition]) -> dict[Partition, tuple[int, int]]:
        stable = await list_offsets(self.cluster, partitions, LATEST, is_committed=True)
        ends = await list_offsets(self.cluster, partitions, LATEST)
        return {partition: (stable[partition], ends[partition]) for partition in partitions}

    async def _read_heads(self, streams: Sequence[int]) -> StoredHeads:
        return await read_heads(self._kafka_group, self.names, streams)
