"""First and next offsets of every stream, and the heads of every group, from Kafka."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Self

from services.control.core.report.observed import Offsets
from shared.kafka.admin.committed import KafkaGroup
from shared.kafka.admin.heads import read_heads
from shared.kafka.connect.access import Kafka
from shared.kafka.connect.cluster import Cluster
from shared.kafka.read.offsets import EARLIEST, LATEST, list_known_offsets
from shared.kafka.record import Partition
from shared.model.head import Head
from shared.model.names import Names

logger = logging.getLogger(__name__)

READS_PER_FIRST = 10
"""First offsets move only by retention, so every tenth reading asks for them."""


class KafkaOffsets:
    """An `OffsetSource`; an async context manager that closes its connections."""

    def __init__(self, kafka: Kafka, names: Names) -> None:
        self._names = names
        self._cluster = Cluster(kafka)
        self._groups: dict[str, KafkaGroup] = {}
        self._first: dict[Partition, int] = {}
        self._reads = 0

    def __repr__(self) -> str:
        return f"<KafkaOffsets by {self._cluster!r}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._cluster.close()

    async def read(self, count: int, groups: Iterable[str]) -> Offsets:
        """Offsets of streams 0 … count - 1, and their heads in each group.

        A log without a leader is left out, and so is a committed offset without a readable head, which is
        logged. Raises KafkaUnavailable.
        """
        if count == 0:
            return Offsets()
        logs = [(self._names.fragments(n), 0) for n in range(count)]
        # heads first: a position that is read after the end might lie above it
        heads = {group: await self._heads(group, count) for group in groups}
        end = await list_known_offsets(self._cluster, logs, LATEST)
        if self._reads % READS_PER_FIRST == 0 or len(self._first) != count:
            self._first |= await list_known_offsets(self._cluster, logs, EARLIEST)
        self._reads += 1
        return Offsets(
            count=count,
            first={n: self._first[log] for n, log in enumerate(logs) if log in self._first},
            end={n: end[log] for n, log in enumerate(logs) if log in end},
            heads=heads,
        )

    async def _heads(self, group: str, count: int) -> Mapping[int, Head]:
        if group not in self._groups:
            self._groups[group] = KafkaGroup(self._cluster, self._names.kafka_group(group))
        stored = await read_heads(self._groups[group], self._names, range(count))
        if stored.unreadable:
            logger.warning("heads are unreadable", extra={"group": group, "streams": dict(stored.unreadable)})
        return stored.heads
