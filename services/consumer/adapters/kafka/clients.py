"""The clients that all streams of a member share.

The connections to the brokers, the fetcher of all streams, and the sender of what needs no transaction: ticks
and sessions of the weaker deliveries. Streams that open at the same time ask by one request.
"""

from __future__ import annotations

from collections.abc import Sequence

from services.consumer.adapters.kafka.coalesce import CoalescedRead
from shared.kafka.access import Kafka
from shared.kafka.cluster import Cluster
from shared.kafka.fetcher import Fetcher
from shared.kafka.groups import KafkaGroup
from shared.kafka.heads import StoredHeads, read_heads
from shared.kafka.offsets import EARLIEST, LATEST, Partition, list_offsets
from shared.kafka.sender import Sender
from shared.model.head import Head
from shared.model.names import Names

START_TIMEOUT_S = 15.0
DELIVER_S = 10.0
BATCH_BYTES = 1024 * 1024


class SharedClients:
    """The clients of one group in one member; `close` them at the end."""

    def __init__(self, kafka: Kafka, names: Names, group: str) -> None:
        self.kafka, self.names, self.group = kafka, names, group
        self.cluster = Cluster(kafka)
        self.fetcher = Fetcher(self.cluster)
        self.sender = Sender(self.cluster, deliver_s=DELIVER_S, max_batch_bytes=BATCH_BYTES)
        self._kafka_group = KafkaGroup(self.cluster, names.kafka_group(group))
        self._heads: CoalescedRead[int, StoredHeads] = CoalescedRead(self._read_heads)
        self._bounds = CoalescedRead(self._read_bounds)
        self._tails = CoalescedRead(self._read_tails)

    def __repr__(self) -> str:
        return f"<SharedClients of {self.group} over {self.cluster!r}>"

    async def head(self, stream: int) -> Head | None:
        """The stream's committed head, if any. Raises KafkaUnavailable; InvalidInput if it is unreadable."""
        return (await self._heads.ask(stream)).of(stream)

    async def log_bounds(self, partition: Partition) -> tuple[int, int]:
        """The first offset of a partition, and the next to be written. Raises KafkaUnavailable."""
        return (await self._bounds.ask(partition))[partition]

    async def checkpoint_tail(self, partition: Partition) -> tuple[int, int]:
        """Of a checkpoints partition, the offset of the first undecided record (its transaction has not
        ended) and the next offset to be written; equal if nothing is undecided. Raises KafkaUnavailable.
        """
        return (await self._tails.ask(partition))[partition]

    async def close(self) -> None:
        """Closes all clients; never raises, never hangs."""
        await self.fetcher.close()
        await self.sender.close()
        await self.cluster.close()

    async def _read_bounds(self, partitions: Sequence[Partition]) -> dict[Partition, tuple[int, int]]:
        # one after the other: the end may be above the first offset for once, never below
        starts = await list_offsets(self.cluster, partitions, EARLIEST)
        ends = await list_offsets(self.cluster, partitions, LATEST)
        return {partition: (starts[partition], ends[partition]) for partition in partitions}

    async def _read_tails(self, partitions: Sequence[Partition]) -> dict[Partition, tuple[int, int]]:
        stable = await list_offsets(self.cluster, partitions, LATEST, is_committed=True)
        ends = await list_offsets(self.cluster, partitions, LATEST)
        return {partition: (stable[partition], ends[partition]) for partition in partitions}

    async def _read_heads(self, streams: Sequence[int]) -> StoredHeads:
        return await read_heads(self._kafka_group, self.names, streams)
