"""Reads what the lake's freshness needs of the sessions topics: ids, offsets, retention, oldest records."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Mapping
from typing import Self

import msgspec

from services.control.core.lake.freshness import Oldest, TopicState, first_lacking
from shared.errors import KafkaDenied
from shared.kafka.admin.catalog import count_replicas, read_settings
from shared.kafka.connect.access import Kafka
from shared.kafka.connect.cluster import Cluster
from shared.kafka.read.offsets import EARLIEST, LATEST, list_offsets
from shared.kafka.read.ranges import read_range
from shared.model.names import Names

_RETENTION = "retention.ms"


class KafkaSessions:
    """A `SessionsTopics`; an async context manager that closes its connections."""

    def __init__(self, kafka: Kafka, names: Names) -> None:
        self._names = names
        self._cluster = Cluster(kafka)
        self._oldest: dict[tuple[str, int], tuple[int, Oldest | None, int]] = {}
        """By topic and partition: where the last search began, what it found, and where it ended."""

    def __repr__(self) -> str:
        return f"<KafkaSessions by {self._cluster!r}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._cluster.close()

    async def describe(self, group: str) -> TopicState | None:
        """The group's topic, with `oldest` still empty; None if there is none. Raises KafkaUnavailable."""
        topic = self._names.sessions(group)
        replicas = await count_replicas(self._cluster, [topic])
        if topic not in replicas:
            return None
        partitions = [(topic, number) for number in range(len(replicas[topic]))]
        first = await list_offsets(self._cluster, partitions, EARLIEST)
        end = await list_offsets(self._cluster, partitions, LATEST, is_committed=True)
        leader = self._cluster.leader(topic, 0)
        return TopicState(
            topic_id=topic_id_text(leader.topic_id) if leader else "",
            bounds={number: (first[topic, number], end[topic, number]) for _, number in partitions},
            retention_ms=await self._retention_ms(topic),
        )

    async def with_oldest(self, group: str, state: TopicState, held: Mapping[int, int]) -> TopicState:
        """`state` with the oldest record that the lake lacks of each partition. Raises KafkaUnavailable."""
        topic, oldest = self._names.sessions(group), {}
        for number, start in first_lacking(held, state).items():
            found = await self._find((topic, number), start, state.bounds[number][1])
            if found is not None:
                oldest[number] = found
        return msgspec.structs.replace(state, oldest=oldest)

    async def _find(self, place: tuple[str, int], start: int, end: int) -> Oldest | None:
        known_from, known, until = self._oldest.get(place, (-1, None, -1))
        at = start
        if known_from == start:
            # a record stays the oldest until the lake reads it or retention deletes it
            if known is not None or until >= end:
                return known
            at = until
        records = read_range(self._cluster, place, at, end - 1, is_committed=True)
        found = None
        async with contextlib.aclosing(records):  # type: ignore[type-var]
            async for record in records:
                found = Oldest(offset=record.offset, time_ms=record.timestamp)
                break
        self._oldest[place] = (start, found, end)
        return found

    async def _retention_ms(self, topic: str) -> int | None:
        try:
            settings = (await read_settings(self._cluster, [topic], [_RETENTION])).get(topic, {})
        except KafkaDenied:
            return None
        retention = int(settings[_RETENTION].value) if _RETENTION in settings else -1
        return retention if retention >= 0 else None


def topic_id_text(topic_id: bytes) -> str:
    """A topic's id as Kafka's own clients write it.

    >>> topic_id_text(bytes(16))
    'AAAAAAAAAAAAAAAAAAAAAA'
    """
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")
