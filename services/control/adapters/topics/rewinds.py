"""Reads from Kafka what a rewind depends on: the logs' bounds and what became of them, heads, retention."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Self

from services.control.core.groups.rewinds import LogState, StreamFacts, log_state
from shared.errors import KafkaUnavailable
from shared.kafka.admin.catalog import count_partitions, is_missing
from shared.kafka.admin.committed import KafkaGroup
from shared.kafka.admin.heads import read_heads
from shared.kafka.connect.access import Kafka
from shared.kafka.connect.cluster import Cluster
from shared.kafka.read.offsets import EARLIEST, LATEST, NONE, list_offsets
from shared.kafka.read.session_search import ClosedAt, append_time, first_closed
from shared.kafka.record import Partition
from shared.model.head import Head
from shared.model.names import Names
from shared.model.start import Cut
from shared.together import together

READ_S = 20.0
FORGOTTEN = "Kafka has forgotten its committed offset; start a member, which finds it again"
"""It does so after 7 days without a member."""


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
        which they closed. So the first one that is left decides, by the broker's clock. None reaches the end
        of the log. Raises KafkaUnavailable.
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
                log = self._names.fragments(stream), 0
                log_end = (await list_offsets(self._cluster, [log], LATEST))[log]
                if offset >= log_end:
                    return True
                reached = await append_time(self._cluster, log, offset, log_end)
                end = (await list_offsets(self._cluster, [partition], LATEST))[partition]
                oldest = await first_closed(self._cluster, partition, stream, first, end)
        except TimeoutError:
            raise KafkaUnavailable(f"{topic} could not be read within {READ_S:g} s") from None
        if oldest is None or reached is None:
            return False
        return oldest[1] < ClosedAt(cut.log, reached)

    async def appended(self, starts: Mapping[int, int]) -> dict[int, int]:
        """By stream, the append time (ms) of the record before its start; without those that are not there.

        Raises KafkaUnavailable.
        """
        places = {stream: (self._names.fragments(stream), 0) for stream, at in starts.items() if at > 0}
        try:
            async with asyncio.timeout(READ_S):
                found = await together(
                    append_time(self._cluster, log, starts[stream] - 1, starts[stream])
                    for stream, log in places.items()
                )
        except TimeoutError:
            raise KafkaUnavailable(f"the logs could not be read within {READ_S:g} s") from None
        return {stream: at for stream, at in zip(places, found, strict=True) if at is not None}

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
        checkpoints = await self._checkpoints(group, before.keys() - heads.heads.keys())
        places = list(logs.values())
        first = await list_offsets(self._cluster, places, EARLIEST)
        end = await list_offsets(self._cluster, places, LATEST)
        at = await list_offsets(self._cluster, places, time_ms) if time_ms is not None else {}
        states = await together(
            self._state(log, heads.heads.get(n), first[log], end[log]) for n, log in logs.items()
        )
        return {
            stream: StreamFacts(
                first=first[log],
                end=end[log],
                at=None if at.get(log, NONE) == NONE else at[log],
                head=heads.heads.get(stream),
                number=checkpoints[stream].start if stream in checkpoints else 0,
                before=before[stream],
                unreadable=heads.unreadable.get(stream, FORGOTTEN if checkpoints.get(stream) else ""),
                log=state,
            )
            for (stream, log), state in zip(logs.items(), states, strict=True)
        }

    async def _checkpoints(self, group: str, streams: Collection[int]) -> dict[int, range]:
        """The offsets of the checkpoint records that the group has of these streams."""
        topic = self._names.checkpoints(group)
        if await is_missing(self._cluster, topic) or not streams:
            return {}
        places = [(topic, stream) for stream in streams]
        first = await list_offsets(self._cluster, places, EARLIEST)
        end = await list_offsets(self._cluster, places, LATEST)
        return {place[1]: range(first[place], end[place]) for place in places}

    async def _state(self, log: Partition, head: Head | None, first: int, end: int) -> LogState:
        first_a = last_a = None
        if head is not None and head.known_end > 0:
            first_a = await append_time(self._cluster, log, first, end)
            if first < head.known_end <= end:
                last_a = await append_time(self._cluster, log, head.known_end - 1, head.known_end)
        return log_state(head, end, first_a, last_a)
