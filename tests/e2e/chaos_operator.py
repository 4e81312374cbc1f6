"""What operators and other tools do to Kafka during a chaos run, for harm and for repair.

Their commands are those that docs/operations.md names (`kafka-consumer-groups.sh --delete-offsets`,
`kafka-delete-records.sh`, `kafka-configs.sh`, `kafka-topics.sh`), sent as the requests that these tools send.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Array, Int16, Int32, Schema, String
from aiokafka.structs import OffsetAndMetadata

from shared.kafka.bounds import LogBounds
from shared.kafka.clients import translated
from shared.kafka.topics import admin_client, ensure_topics, fragments_topics, list_topics, sessions_topic
from tests.e2e.readers import Where
from tests.waiting import POLL_S

RETENTION_MS = 604_800_000
DAMAGED = "not a head"
TIMEOUT_S = 30.0
UNKNOWN_GROUP = 69


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
        (
            "topics",
            Array(("name", String("utf-8")), ("partitions", Array(Int32))),
        ),
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


async def damage_heads(where: Where, streams: Collection[int]) -> None:
    """Commits the streams' offsets with other metadata, as a tool that resets offsets does.

    Raises KafkaUnavailable.
    """
    offsets = {
        TopicPartition(where.names.fragments(stream), 0): OffsetAndMetadata(0, DAMAGED) for stream in streams
    }
    with translated("no offset committed"):
        async with (
            asyncio.timeout(TIMEOUT_S),
            AIOKafkaConsumer(
                bootstrap_servers=where.kafka,
                group_id=where.names.kafka_group(where.group),
                enable_auto_commit=False,
            ) as consumer,
        ):
            consumer.assign(list(offsets))
            await consumer.commit(offsets)


async def delete_offsets(where: Where, streams: Collection[int]) -> None:
    """Deletes the streams' committed offsets. Raises KafkaUnavailable."""
    group = where.names.kafka_group(where.group)
    with translated("no offset deleted"):
        async with asyncio.timeout(TIMEOUT_S), admin_client(where.kafka) as admin:
            coordinator = await admin.find_coordinator(group)
            request = _OffsetDelete(group, [where.names.fragments(stream) for stream in streams])
            answer = await admin._send_request(request, coordinator)
    assert answer.error_code in (0, UNKNOWN_GROUP), answer
    codes = {code for _, partitions in answer.topics for _, code in partitions}
    assert codes <= {0}, answer


async def delete_checkpoints(where: Where, streams: Collection[int]) -> None:
    """Deletes all records of the streams' checkpoints partitions. Raises KafkaUnavailable."""
    partitions = [TopicPartition(where.names.checkpoints(where.group), stream) for stream in streams]
    bounds = LogBounds(where.kafka)
    try:
        ends = await bounds.ends(partitions)
    finally:
        await bounds.close()
    async with admin_client(where.kafka) as admin:
        await admin.delete_records(
            {partition: RecordsToDelete(before_offset=end) for partition, end in ends.items()}
        )


async def limit_sessions(where: Where, bytes_per_record: int | None) -> None:
    """Sets the largest record batch of the sessions topic; None: back to what Baton created it with.

    Raises KafkaUnavailable.
    """
    spec = sessions_topic(where.names, where.group, where.partitions, RETENTION_MS)
    configs: Mapping[str, str] = spec.configs
    if bytes_per_record is not None:
        configs = {**configs, "max.message.bytes": str(bytes_per_record)}
    resource = ConfigResource(ConfigResourceType.TOPIC, spec.name, dict(configs))
    with translated("no configuration altered"):
        async with asyncio.timeout(TIMEOUT_S), admin_client(where.kafka) as admin:
            (answer,) = await admin.alter_configs([resource])
    assert answer.resources[0][0] == 0, answer


async def create_anew(where: Where, streams: Collection[int]) -> None:
    """Deletes the streams' fragments topics, and creates them anew, empty."""
    specs = fragments_topics(where.names, where.streams, RETENTION_MS)
    chosen = [specs[stream] for stream in streams]
    async with admin_client(where.kafka) as admin:
        await admin.delete_topics([spec.name for spec in chosen])
    async with asyncio.timeout(TIMEOUT_S):
        while {spec.name for spec in chosen} & set(await list_topics(where.kafka)):  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)
    await ensure_topics(where.kafka, chosen, 1)
