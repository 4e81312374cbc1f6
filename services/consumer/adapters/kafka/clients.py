"""The clients that all streams of a member share.

The connections to the brokers, the fetcher of all streams, and the sender of what needs no transaction: ticks
and sessions of the weaker deliveries. Streams that open at the same time ask by one request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from services.consumer.adapters.kafka.coalesce import CoalescedRead
from shared.kafka.admin.committed import KafkaGroup
from shared.kafka.admin.heads import StoredHeads, read_heads
from shared.kafka.connect.access import Kafka
from shared.kafka.connect.cluster import Cluster
from shared.kafka.read.fetcher import Fetcher
from shared.kafka.read.offsets import EARLIEST, LATEST, list_known_offsets, list_offsets
from shared.kafka.record import Partition
from shared.kafka.send.sender import Sender
from shared.model.head import Head
from shared.model.names import Names

START_TIMEOUT_S = 15.0
DELIVER_S = 10.0
BATCH_BYTES = 1024 * 1024

LookUp = Callable[..., Awaitable[dict[Partition, int]]]
"""`list_offsets`, or `list_known_offsets`."""


class SharedClients:
    """The clients of one group in one member; `close` them at the end."""

    def __init__(self, kafka: Kafka, names: Names, group: str) -> None:
        self.kafka, self.names, self.group = kafka, names, group
        self.cluster = Cluster(kafka)
        # only a mirror writes fragments in transactions, and it leaves aborted ones when it is killed
        self.fetcher = Fetcher(self.cluster, is_committed=True)
        self.sender = Sender(self.cluster, deliver_s=DELIVER_S, max_batch_bytes=BATCH_BYTES)
        self._kafka_group = KafkaGroup(self.cluster, names.kafka_group(group))
        self._heads = CoalescedRead(self._read_heads)
        self._bounds = CoalescedRead(
            partial(self._read_bounds, list_known_offsets), partial(self._read_bounds, list_offsets)
        )
        self._tails = CoalescedRead(
            partial(self._read_tails, list_known_offsets), partial(self._read_tails, list_offsets)
        )

    def __repr__(self) -> str:
        return f"<SharedClients of {self.group} over {self.cluster!r}>"

    async def head(self, stream: int) -> Head | None:
        """The stream's committed head, if any. Raises KafkaUnavailable; InvalidInput if it is unreadable."""
        return (await self._heads.ask(stream)).of(stream)

    async def log_bounds(self, partition: Partition) -> tuple[int, int]:
        """The first offset of a partition, and the next to be written. Raises KafkaUnavailable."""
        return await self._bounds.ask(partition)

    async def checkpoint_tail(self, partition: Partition) -> tuple[int, int]:
        """Of a checkpoints partition, the offset of the first undecided record (its transaction has not
        ended) and the next offset to be written; equal if nothing is undecided. Raises KafkaUnavailable.
        """
        return await self._tails.ask(partition)

    async def close(self) -> None:
        """Closes all clients; never raises, never hangs."""
        await self.fetcher.close()
        await self.sender.close()
        await self.cluster.close()

    async def _read_bounds(
        self, look: LookUp, partitions: Sequence[Partition]
    ) -> dict[Partition, tuple[int, int]]:
        # one after the other: the end may be above the first offset for once, never below
        starts = await look(self.cluster, partitions, EARLIEST)
        ends = await look(self.cluster, starts, LATEST)
        return {partition: (starts[partition], end) for partition, end in ends.items()}

    async def _read_tails(
        self, look: LookUp, partitions: Sequence[Partition]
    ) -> dict[Partition, tuple[int, int]]:
        stable = await look(self.cluster, partitions, LATEST, is_committed=True)
        ends = await look(self.cluster, stable, LATEST)
        return {partition: (stable[partition], end) for partition, end in ends.items()}

    async def _read_heads(self, streams: Sequence[int]) -> dict[int, StoredHeads]:
        return dict.fromkeys(streams, await read_heads(self._kafka_group, self.names, streams))
