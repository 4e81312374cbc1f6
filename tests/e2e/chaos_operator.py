"""What operators and other tools do to Kafka during a chaos run, for harm and for repair.

The repairs are those of docs/operations.md (`baton kafka forget`), through the functions of that command.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from cli.kafka.repair import change_settings, delete_offsets, delete_records
from shared.kafka.admin.committed import KafkaGroup
from shared.kafka.admin.topics import ensure_topics, fragments_topics, list_topics, sessions_topic
from shared.kafka.connect.cluster import Cluster
from tests.e2e.readers import Where
from tests.topics import admin_client
from tests.waiting import POLL_S

RETENTION_MS = 604_800_000
DAMAGED = "not a head"
TIMEOUT_S = 30.0


async def damage_heads(where: Where, streams: Collection[int]) -> None:
    """Commits the streams' offsets with other metadata, as a tool that resets offsets does.

    Raises KafkaUnavailable.
    """
    async with Cluster(where.kafka) as cluster:
        group = KafkaGroup(cluster, where.names.kafka_group(where.group))
        for stream in streams:
            await group.commit((where.names.fragments(stream), 0), 0, DAMAGED)


async def forget_heads(where: Where, streams: Collection[int]) -> None:
    """Deletes the streams' committed offsets. Raises KafkaUnavailable."""
    topics = [where.names.fragments(stream) for stream in streams]
    await delete_offsets(where.kafka, where.names.kafka_group(where.group), topics)


async def delete_checkpoints(where: Where, streams: Collection[int]) -> None:
    """Deletes all records of the streams' checkpoints partitions. Raises KafkaUnavailable."""
    await delete_records(where.kafka, where.names.checkpoints(where.group), streams)


async def limit_sessions(where: Where, bytes_per_record: int | None) -> None:
    """Sets the largest record batch of the sessions topic; None: back to what Baton created it with.

    Raises KafkaUnavailable.
    """
    spec = sessions_topic(where.names, where.group, where.partitions, RETENTION_MS)
    limit = {} if bytes_per_record is None else {"max.message.bytes": str(bytes_per_record)}
    await change_settings(where.kafka, spec.name, {**spec.configs, **limit})


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
