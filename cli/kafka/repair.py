"""What an operator may have to change in Kafka by hand; Baton's jars hold none of Kafka's own tools.

Shows one record, changes a topic's settings, and deletes a stream's committed offset and checkpoints. Used by
`baton kafka`; docs/operations.md says when.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Array, Int16, Int32, Schema, String

from shared.errors import InvalidInput, NotFound
from shared.kafka.bounds import LogBounds
from shared.kafka.clients import CALL_TIMEOUT_S, discard_consumer, started_consumer, translated
from shared.kafka.topics import MAX_RECORD_BYTES, admin_client, count_partitions

TIMEOUT_S = 30.0
_UNKNOWN_GROUP = 69
_OF_THE_TOPIC = 1
"""The source of a setting that was made for this topic; the others are defaults of the broker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRecord:
    """A record as Kafka has it; `time_ms` is the broker's or the producer's time, as the topic says."""

    offset: int
    time_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


async def read_record(kafka: str, topic: str, partition: int, offset: int) -> StoredRecord:
    """The record at the offset. Raises NotFound, KafkaUnavailable."""
    if partition >= await count_partitions(kafka, topic):
        raise NotFound(f"{topic} has no partition {partition}")
    place = TopicPartition(topic, partition)
    with translated(f"Kafka at {kafka} does not answer"):
        consumer = await started_consumer(kafka, max_partition_fetch_bytes=2 * MAX_RECORD_BYTES)
    try:
        with translated("the record cannot be read"):
            async with asyncio.timeout(TIMEOUT_S):
                consumer.assign([place])
                consumer.seek(place, offset)
                first, end = (
                    (await consumer.beginning_offsets([place]))[place],
                    (await consumer.end_offsets([place]))[place],
                )
                if not first <= offset < end:
                    raise NotFound(f"{topic}/{partition} holds the offsets {first} … {end - 1}")
                while await consumer.position(place) <= offset:
                    for record in (await consumer.getmany(place, timeout_ms=500)).get(place, []):
                        if record.offset == offset:
                            return StoredRecord(
                                offset=offset,
                                time_ms=record.timestamp,
                                key=record.key,
                                value=record.value,
                                headers=tuple(record.headers),
                            )
    finally:
        await discard_consumer(consumer)
    raise NotFound(f"{topic}/{partition} has no record at {offset}, but the end of a transaction")


async def change_settings(kafka: str, topic: str, changes: Mapping[str, str]) -> dict[str, str]:
    """Changes settings of a topic, and returns all that it has of its own.

    Raises NotFound, InvalidInput when Kafka rejects a setting, KafkaUnavailable.
    """
    await count_partitions(kafka, topic)
    async with admin_client(kafka) as admin:
        settings = await _own_settings(admin, topic) | dict(changes)
        if changes:
            resource = ConfigResource(ConfigResourceType.TOPIC, topic, settings)
            with translated("no setting changed"):
                async with asyncio.timeout(TIMEOUT_S):
                    (answer,) = await admin.alter_configs([resource])
            code, message, *_ = answer.resources[0]
            if code:
                raise InvalidInput(f"Kafka rejects the settings: {message or f'error {code}'}")
    return settings


async def delete_offsets(kafka: str, kafka_group: str, topics: Iterable[str]) -> None:
    """Deletes the group's committed offsets of partition 0 of the topics; none is no error.

    Raises KafkaUnavailable.
    """
    async with admin_client(kafka) as admin:
        with translated("no offset deleted"):
            async with asyncio.timeout(TIMEOUT_S):
                coordinator = await admin.find_coordinator(kafka_group)
                answer = await admin._send_request(_OffsetDelete(kafka_group, topics), coordinator)
    codes = {code for _, partitions in answer.topics for _, code in partitions} | {answer.error_code}
    if failed := codes - {0, _UNKNOWN_GROUP}:
        raise InvalidInput(f"Kafka deletes no offset of {kafka_group}: error {min(failed)}")


async def delete_records(kafka: str, topic: str, partitions: Iterable[int]) -> None:
    """Deletes all records of the partitions; their offsets go on. Raises KafkaUnavailable."""
    places = [TopicPartition(topic, number) for number in partitions]
    bounds = LogBounds(kafka)
    try:
        ends = await bounds.ends(places)
    finally:
        await bounds.close()
    async with admin_client(kafka) as admin:
        with translated("no record deleted"):
            async with asyncio.timeout(TIMEOUT_S):
                await admin.delete_records(
                    {place: RecordsToDelete(before_offset=end) for place, end in ends.items()}
                )


async def _own_settings(admin: AIOKafkaAdminClient, topic: str) -> dict[str, str]:
    # all of them: Kafka's request replaces the whole set
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    with translated("settings cannot be read"):
        async with asyncio.timeout(CALL_TIMEOUT_S):
            (answer,) = await admin.describe_configs([resource])
    *_, entries = answer.resources[0]
    return {name: value for name, value, _, source, *_ in entries if source == _OF_THE_TOPIC}


class _OffsetDeleteResponse(Response):  # type: ignore[misc]
    API_KEY, API_VERSION = 47, 0
    SCHEMA = Schema(
        ("error_code", Int16),
        ("throttle_time_ms", Int32),
        (
            "topics",
            Array(
                ("name", String("utf-8")),
                ("partitions", Array(("partition_index", Int32), ("error_code", Int16))),
            ),
        ),
    )


class _OffsetDeleteRequestV0(RequestStruct):  # type: ignore[misc]
    API_KEY, API_VERSION = 47, 0
    RESPONSE_TYPE = _OffsetDeleteResponse
    SCHEMA = Schema(
        ("group_id", String("utf-8")),
        ("topics", Array(("name", String("utf-8")), ("partitions", Array(Int32)))),
    )


class _OffsetDelete(Request[_OffsetDeleteRequestV0]):  # type: ignore[misc]
    """aiokafka has no request of this kind."""

    API_KEY = 47

    def __init__(self, group: str, topics: Iterable[str]) -> None:
        self._group = group
        self._topics = list(topics)

    def build(self, request_struct_class: type[_OffsetDeleteRequestV0]) -> _OffsetDeleteRequestV0:
        """The request in its only version."""
        return request_struct_class(self._group, [(topic, [0]) for topic in self._topics])
