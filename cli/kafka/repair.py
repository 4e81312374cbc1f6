"""What an operator may have to change in Kafka by hand; Baton's jars hold none of Kafka's own tools.

Shows one record, changes a topic's settings, and deletes a stream's committed offset and checkpoints. Used by
`baton kafka`; docs/operations.md says when.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cli.kafka.bounds import bounds_of
from cli.kafka.connection import connected
from shared.errors import NotFound
from shared.kafka.admin.catalog import change_settings as change_settings_of
from shared.kafka.admin.catalog import count_partitions, read_settings
from shared.kafka.admin.committed import KafkaGroup
from shared.kafka.connect.access import Kafka
from shared.kafka.read.offsets import LATEST, list_offsets
from shared.kafka.read.offsets import delete_records as delete_records_below
from shared.kafka.read.ranges import read_range


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRecord:
    """A record as Kafka has it; `time_ms` is the broker's or the producer's time, as the topic says."""

    offset: int
    time_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


async def read_record(kafka: Kafka, topic: str, partition: int, offset: int) -> StoredRecord:
    """The record at the offset. Raises NotFound, KafkaUnavailable."""
    place = topic, partition
    async with connected(kafka) as cluster:
        bounds = await bounds_of(cluster, topic)
        if partition not in bounds:
            raise NotFound(f"{topic} has no partition {partition}")
        first, end = bounds[partition]
        if not first <= offset < end:
            raise NotFound(f"{topic}/{partition} holds the offsets {first} … {end - 1}")
        async for record in read_range(cluster, place, offset, offset, is_committed=False):
            return StoredRecord(
                offset=offset,
                time_ms=record.timestamp,
                key=record.key,
                value=record.value,
                headers=tuple(record.headers),
            )
    raise NotFound(f"{topic}/{partition} has no record at {offset}, but the end of a transaction")


async def change_settings(kafka: Kafka, topic: str, changes: Mapping[str, str]) -> dict[str, str]:
    """Changes settings of a topic, and returns all that it has of its own.

    Raises NotFound, InvalidInput when Kafka rejects a setting, KafkaUnavailable.
    """
    async with connected(kafka) as cluster:
        await count_partitions(cluster, topic)
        found = (await read_settings(cluster, [topic]))[topic]
        if changes:
            await change_settings_of(cluster, topic, changes)
    return {name: one.value for name, one in found.items() if one.is_own} | dict(changes)


async def delete_offsets(kafka: Kafka, kafka_group: str, topics: Iterable[str]) -> None:
    """Deletes the group's committed offsets of partition 0 of the topics; none is not an error.

    Raises KafkaUnavailable, InvalidInput.
    """
    async with connected(kafka) as cluster:
        await KafkaGroup(cluster, kafka_group).delete([(topic, 0) for topic in topics])


async def delete_records(kafka: Kafka, topic: str, partitions: Iterable[int]) -> None:
    """Deletes all records of the partitions; their offsets go on. Raises KafkaUnavailable."""
    async with connected(kafka) as cluster:
        ends = await list_offsets(cluster, [(topic, number) for number in partitions], LATEST)
        await delete_records_below(cluster, ends)
