"""The topics with the settings that each needs, and calls that create, list and describe them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from shared.errors import InvalidInput, KafkaUnavailable
from shared.kafka.clients import CALL_TIMEOUT_S, KAFKA_FAILURES, translated
from shared.model.names import Names

CREATE_TIMEOUT_S = 30.0
"""A broker may need seconds for thousands of topics."""
MAX_RECORD_BYTES = 2 * 1024 * 1024
"""Largest record of `sessions` and `checkpoints`, and largest batch of any topic."""
EVENTS_RETENTION_MS = 7 * 86_400_000
"""A week, Kafka's default: long enough to look up what happened over a weekend. The current state is in
ZooKeeper, so nothing depends on older events."""
REJECTED_RETENTION_MS = 5 * 86_400_000
REJECTED_SEGMENT_MS = 86_400_000
"""Kafka deletes a segment when its newest record expires, so a reject lives at most for both times together.
That is less than the 7 days for which Kafka keeps the committed offsets of an idle group, and those record
what was replayed."""
CHECKPOINTS_SEGMENT_BYTES = 16 * 1024 * 1024
"""Trimmed checkpoints lie on disk until their whole segment is trimmed, and the newest segment always stays.
Kafka's default of 1 GB would keep that much for every stream."""
REJECTED_RETENTION_BYTES = 1024 * 1024 * 1024
"""However many fragments are rejected, they do not fill the disk."""
MIN_INSYNC = "min.insync.replicas"
"""How many replicas must have a record before acks=all is answered. Kafka's default of 1 lets a leader answer
that has lost its followers; what it then holds alone is acknowledged, and lost if it fails."""
SHOWN_TOPICS = 3
_TOPIC_EXISTS = 36
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """A topic to create."""

    name: str
    partitions: int = 1
    configs: Mapping[str, str] = field(default_factory=dict)


_BROKER_TIME = {"message.timestamp.type": "LogAppendTime"}
_LARGE_RECORDS = {"max.message.bytes": str(MAX_RECORD_BYTES)}


def _kept_for(retention_ms: int) -> dict[str, str]:
    return {"cleanup.policy": "delete", "retention.ms": str(retention_ms)}


def fragments_topics(names: Names, streams: int, retention_ms: int) -> list[TopicSpec]:
    """One topic with one partition per stream; records carry the broker's append time."""
    configs = _kept_for(retention_ms) | _BROKER_TIME | _LARGE_RECORDS
    return [TopicSpec(name=names.fragments(n), configs=configs) for n in range(streams)]


def sessions_topic(names: Names, group: str, partitions: int, retention_ms: int) -> TopicSpec:
    """The finished sessions of a group; partition = stream mod partitions."""
    configs = _kept_for(retention_ms) | _LARGE_RECORDS
    return TopicSpec(name=names.sessions(group), partitions=partitions, configs=configs)


def checkpoints_topic(names: Names, group: str, streams: int) -> TopicSpec:
    """The checkpoints of a group; partition n belongs to stream n, and only its owner deletes records."""
    sizes = {"retention.bytes": "-1", "segment.bytes": str(CHECKPOINTS_SEGMENT_BYTES)}
    configs = _kept_for(-1) | _LARGE_RECORDS | sizes
    return TopicSpec(name=names.checkpoints(group), partitions=streams, configs=configs)


def events_topic(names: Names) -> TopicSpec:
    """Events, in one partition, so that offsets can be the ids of `GET /events`."""
    return TopicSpec(name=names.events, configs=_kept_for(EVENTS_RETENTION_MS))


def rejected_topic(names: Names) -> TopicSpec:
    """Rejected fragments (shared/model/rejects.py); records carry the broker's append time."""
    bounds = {"segment.ms": str(REJECTED_SEGMENT_MS), "retention.bytes": str(REJECTED_RETENTION_BYTES)}
    return TopicSpec(name=names.rejected, configs=_kept_for(REJECTED_RETENTION_MS) | _BROKER_TIME | bounds)


def needed_insync(replication: int) -> int:
    """The `min.insync.replicas` of a topic: 2, so that a record outlives a broker, if it has 2 replicas."""
    return min(2, replication)


@contextlib.asynccontextmanager
async def admin_client(kafka: str) -> AsyncIterator[AIOKafkaAdminClient]:
    """A started admin client, open during the block. Raises KafkaUnavailable when no broker answers."""
    client = AIOKafkaAdminClient(bootstrap_servers=kafka, request_timeout_ms=int(CALL_TIMEOUT_S * 1000))
    try:
        with translated("Kafka does not answer", at=kafka):
            async with asyncio.timeout(CALL_TIMEOUT_S):
                await client.start()
        yield client
    finally:
        with contextlib.suppress(*KAFKA_FAILURES):
            async with asyncio.timeout(CALL_TIMEOUT_S):
                await client.close()


async def ensure_topics(kafka: str, specs: Iterable[TopicSpec], replication: int) -> list[str]:
    """Creates the topics that do not exist yet and returns their names; does not change existing ones.

    Warns if existing ones acknowledge too early (`needed_insync`). Returns normally if another process
    creates a topic first. Raises KafkaUnavailable, or InvalidInput when Kafka rejects a topic.
    """
    topics = [
        NewTopic(
            name=spec.name,
            num_partitions=spec.partitions,
            replication_factor=replication,
            topic_configs={**spec.configs, MIN_INSYNC: str(needed_insync(replication))},
        )
        for spec in specs
    ]
    async with admin_client(kafka) as admin:
        # AttributeError: the broker does not know a controller yet
        with translated("topics cannot be created", (*KAFKA_FAILURES, AttributeError)):
            async with asyncio.timeout(CREATE_TIMEOUT_S):
                response = await admin.create_topics(topics)
        created: list[str] = []
        existing: list[str] = []
        rejected: list[str] = []
        for name, code, *message in response.topic_errors:
            if code == 0:
                created.append(name)
            elif code == _TOPIC_EXISTS:
                existing.append(name)
            else:
                rejected.append(f"{name}: error {code} {message[0] if message else ''}".rstrip())
        if rejected:
            raise InvalidInput(f"Kafka rejects topics: {'; '.join(rejected[:SHOWN_TOPICS])}")
        if existing:
            # only for a warning, so no reason to fail: a broker may forbid it
            with contextlib.suppress(*KAFKA_FAILURES):
                async with asyncio.timeout(CALL_TIMEOUT_S):
                    await _warn_of_early_acknowledgements(admin, existing, replication)
    return created


async def _warn_of_early_acknowledgements(
    admin: AIOKafkaAdminClient, names: Sequence[str], replication: int
) -> None:
    wanted = [ConfigResource(ConfigResourceType.TOPIC, name, {MIN_INSYNC: None}) for name in names]
    # the effective values: a topic without one of its own has the broker's
    has = {
        resource[3]: int(value)
        for answer in await admin.describe_configs(wanted)
        for resource in answer.resources
        for config, value, *_ in resource[4]
        if config == MIN_INSYNC
    }
    # an operator may have created it with more replicas than this service is set to
    needs = {
        one["topic"]: needed_insync(max([replication, *(len(p["replicas"]) for p in one["partitions"])]))
        for one in await admin.describe_topics(list(names))
    }
    weak = [f"{name} has {has[name]}" for name in names if has.get(name, 2) < needs.get(name, 0)]
    if weak:
        shown = ", ".join(weak[:SHOWN_TOPICS])
        fields = {"topics": shown, "count": len(weak), "needed": max(needs.values())}
        logger.warning("min.insync.replicas too low", extra=fields)


async def list_topics(kafka: str) -> list[str]:
    """The names of all topics. Raises KafkaUnavailable."""
    async with admin_client(kafka) as admin:
        with translated("topics cannot be listed"):
            async with asyncio.timeout(CALL_TIMEOUT_S):
                return list(await admin.list_topics())


async def count_partitions(kafka: str, topic: str) -> int:
    """The topic's number of partitions. Raises KafkaUnavailable, also while the topic does not exist yet."""
    async with admin_client(kafka) as admin:
        with translated(f"{topic} cannot be described"):
            async with asyncio.timeout(CALL_TIMEOUT_S):
                found = await admin.describe_topics([topic])
    partitions = [len(one["partitions"]) for one in found if one["topic"] == topic and not one["error_code"]]
    if not partitions or not partitions[0]:
        raise KafkaUnavailable(f"there is no topic {topic} yet")
    return partitions[0]
