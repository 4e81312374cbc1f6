"""Reads from Kafka what a rewind depends on: the logs' bounds and what became of them, heads, retention."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Self

import msgspec

from services.control.core.rewinds import LogState, StreamFacts, log_state
from shared.errors import KafkaUnavailable
from shared.kafka.access import Kafka
from shared.kafka.catalog import count_partitions, is_missing
from shared.kafka.cluster import Cluster
from shared.kafka.groups import KafkaGroup
from shared.kafka.heads import read_heads
from shared.kafka.offsets import EARLIEST, LATEST, NONE, Partition, list_offsets
from shared.kafka.ranges import read_range
from shared.model.head import Head
from shared.model.names import Names
from shared.model.start import Cut

READ_S = 20.0


class KafkaRewinds:
    """A `RewindSource`; an async context manager that closes its connections."""

    def __init__(self, kafka: Kafka, names: Names) -> None:
        self._names = names
        self._cluster = Cluster(kafka)

    def __repr__(self) -> str:
        return f"<KafkaRewinds by {self._cluster!r}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._cluster.close()

    async def facts(
        self, group: str, before: Mapping[int, int | None], time_ms: int | None
    ) -> dict[int, StreamFacts]:
        """The facts of each stream; `before`: where the group starts itself. Raises KafkaUnavailable."""
        try:
            async with asyncio.timeout(READ_S):
                return await self._facts(group, before, time_ms)
        except TimeoutError:
            raise KafkaUnavailable(f"the logs could not be read within {READ_S:g} s") from None

    async def has_sessions_since(self, cut: Cut, stream: int, offset: int) -> bool:
        """Whether the cut's group's sessions that reach this offset of the stream are still in their topic.

        They closed after the record there was appended, and a stream's sessions are delivered in the order in
        which they closed. So the first one that is left decides, by the broker's clock. Raises
        KafkaUnavailable.
        """
        topic = self._names.sessions(cut.group)
        if await is_missing(self._cluster, topic):
            return True
        partition = topic, stream % await count_partitions(self._cluster, topic)
        first = (await list_offsets(self._cluster, [partition], EARLIEST))[partition]
        if first == 0:
            return True
        try:
            async with asyncio.timeout(READ_S):
                reached = await self._appended((self._names.fragments(stream), 0), offset, offset + 1)
                oldest = await self._first_closed_at(partition, first, stream)
        except TimeoutError:
            raise KafkaUnavailable(f"{topic} could not be read within {READ_S:g} s") from None
        return oldest is not None and reached is not None and oldest < reached

    async def is_unused(self, group: str) -> bool:
        """Whether no group of this name has ever run. Raises KafkaUnavailable."""
        return await is_missing(self._cluster, self._names.sessions(group))

    async def _facts(
        self, group: str, before: Mapping[int, int | None], time_ms: int | None
    ) -> dict[int, StreamFacts]:
        logs = {stream: (self._names.fragments(stream), 0) for stream in before}
        # heads first: a position that is read after the end might lie above it
        heads = await read_heads(
            KafkaGroup(self._cluster, self._names.kafka_group(group)), self._names, before
        )
        places = list(logs.values())
        first = await list_offsets(self._cluster, places, EARLIEST)
        end = await list_offsets(self._cluster, places, LATEST)
        at = await list_offsets(self._cluster, places, time_ms) if time_ms is not None else {}
        states = await asyncio.gather(
            *(self._state(log, heads.heads.get(n), first[log], end[log]) for n, log in logs.items())
        )
        return {
            stream: StreamFacts(
                first=first[log],
                end=end[log],
                at=None if at.get(log, NONE) == NONE else at[log],
                head=heads.heads.get(stream),
                before=before[stream],
                unreadable=heads.unreadable.get(stream, ""),
                log=state,
            )
            for (stream, log), state in zip(logs.items(), states, strict=True)
        }

    async def _state(self, log: Partition, head: Head | None, first: int, end: int) -> LogState:
        first_a = last_a = None
        if head is not None and head.position > 0:
            first_a = await self._appended(log, first, end)
            if first < head.position <= end:
                last_a = await self._appended(log, head.position - 1, head.position)
        return log_state(head, end, first_a, last_a)

    async def _appended(self, log: Partition, first: int, end: int) -> int | None:
        """The timestamp (ms) of the first record from `first` on, None if there is none below `end`."""
        async for record in read_range(self._cluster, log, first, end - 1, is_committed=False):
            timestamp: int = record.timestamp
            return timestamp
        return None

    async def _first_closed_at(self, partition: Partition, first: int, stream: int) -> int | None:
        """`closed_at` (ms) of the stream's first session in the partition, None if it has none there."""
        end = (await list_offsets(self._cluster, [partition], LATEST))[partition]
        async for record in read_range(self._cluster, partition, first, end - 1, is_committed=True):
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
                session = _closed_of(record.value)
                if session.stream == stream:
                    return session.closed_at
        return None


class _Closed(msgspec.Struct, frozen=True):
    """What is asked of a delivered session."""

    stream: int
    closed_at: int


_closed_of = msgspec.json.Decoder(_Closed).decode
