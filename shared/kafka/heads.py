"""Reads committed offsets with their metadata: above all the heads of a group's streams.

The sinks of a member, control's view and the audit read heads; replays of rejects read their places. A
committed offset without a valid head concerns only its own stream: the heads of the others are returned.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import (
    GroupCoordinatorNotAvailableError,
    GroupLoadInProgressError,
    NotCoordinatorForGroupError,
)
from aiokafka.structs import OffsetAndMetadata

from shared.errors import InvalidInput, KafkaUnavailable
from shared.kafka.clients import CALL_TIMEOUT_S, translated
from shared.model.head import Head, parse_head
from shared.model.names import Names

_COORDINATOR_MOVES = (
    GroupCoordinatorNotAvailableError,
    GroupLoadInProgressError,
    NotCoordinatorForGroupError,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredHeads:
    """The heads by stream, and for streams with an invalid head the reason.

    A stream without a committed offset is in neither.
    """

    heads: Mapping[int, Head]
    unreadable: Mapping[int, str]

    def of(self, stream: int) -> Head | None:
        """The stream's head, None if nothing is committed. Raises InvalidInput if it is invalid."""
        if stream in self.unreadable:
            raise InvalidInput(f"stream {stream}: {self.unreadable[stream]}")
        return self.heads.get(stream)

    def all(self) -> Mapping[int, Head]:
        """All heads. Raises InvalidInput if any of them is invalid."""
        for stream in self.unreadable:
            self.of(stream)
        return self.heads


@dataclass(slots=True)
class Coordinator:
    """The node id of the broker that coordinates a Kafka group, as last found; None if unknown."""

    node: int | None = None


async def read_heads(
    admin: AIOKafkaAdminClient,
    names: Names,
    group: str,
    streams: Iterable[int],
    coordinator: Coordinator | None = None,
) -> StoredHeads:
    """The heads of a group's streams, in one request of 1–3 ms; a reused `coordinator` saves its lookup.

    Raises KafkaUnavailable.
    """
    partitions = [TopicPartition(names.fragments(n), 0) for n in streams]
    found = await committed_offsets(admin, names.kafka_group(group), partitions, coordinator)
    heads: dict[int, Head] = {}
    unreadable: dict[int, str] = {}
    for partition, committed in found.items():
        stream = names.stream_of(partition.topic)
        if stream is None or committed.offset < 0:
            continue
        try:
            heads[stream] = parse_head(committed.offset, committed.metadata)
        except InvalidInput as error:
            unreadable[stream] = error.detail
    return StoredHeads(heads=heads, unreadable=unreadable)


async def committed_offsets(
    admin: AIOKafkaAdminClient,
    kafka_group: str,
    partitions: Sequence[TopicPartition],
    coordinator: Coordinator | None = None,
) -> dict[TopicPartition, OffsetAndMetadata]:
    """The group's offset of every partition, -1 for none, with its metadata. Raises KafkaUnavailable."""
    coordinator = Coordinator() if coordinator is None else coordinator
    try:
        with translated("committed offsets cannot be read"):
            async with asyncio.timeout(CALL_TIMEOUT_S):
                return await _group_offsets(admin, kafka_group, partitions, coordinator)
    except KafkaUnavailable:
        # the group may have moved to another broker
        coordinator.node = None
        raise


async def _group_offsets(
    admin: AIOKafkaAdminClient,
    kafka_group: str,
    partitions: Sequence[TopicPartition],
    coordinator: Coordinator,
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Committed offsets; retries while the group's coordinator moves or loads."""
    while True:
        try:
            if coordinator.node is None:
                coordinator.node = await admin.find_coordinator(kafka_group)
            found: dict[TopicPartition, OffsetAndMetadata] = await admin.list_consumer_group_offsets(
                kafka_group, group_coordinator_id=coordinator.node, partitions=partitions
            )
        except _COORDINATOR_MOVES:
            found = {}
        # aiokafka ignores an error of a single partition and leaves it out of the answer, which would look
        # like a stream that never committed anything
        if found.keys() >= set(partitions):
            return found
        coordinator.node = None
        await asyncio.sleep(0.05)
