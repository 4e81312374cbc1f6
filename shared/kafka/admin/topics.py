"""Baton's topics with the settings that each needs, and how to create those that are missing.

Each call opens connections of its own; `catalog.py` has the requests behind them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Iterable, Sequence

from shared.errors import KafkaUnavailable
from shared.kafka.admin.catalog import TopicSpec, count_replicas, create_topics, list_all, read_settings
from shared.kafka.connect.access import Kafka
from shared.kafka.connect.cluster import Cluster
from shared.model.names import Names

MAX_RECORD_BYTES = 2 * 1024 * 1024
"""Largest record of `sessions` and `checkpoints`, and largest batch of any topic."""
EVENTS_RETENTION_MS = 7 * 86_400_000
"""A week, Kafka's default: long enough to look up what happened over a weekend. The current state is in
ZooKeeper, so nothing depends on older events."""
HISTORY_RETENTION_MS = 2 * 3_600_000
"""Control shows an hour; segments are deleted whole, so a part of the second hour is always left."""
HISTORY_RETENTION_BYTES = 64 * 1024 * 1024
HISTORY_SEGMENT_MS = 1_800_000
HISTORY_SEGMENT_BYTES = 16 * 1024 * 1024
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
logger = logging.getLogger(__name__)

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


def history_topic(names: Names) -> TopicSpec:
    """Control's samples of the last hours, in one partition: a few MB, read whole when control starts."""
    bounds = {
        "retention.bytes": str(HISTORY_RETENTION_BYTES),
        "segment.ms": str(HISTORY_SEGMENT_MS),
        "segment.bytes": str(HISTORY_SEGMENT_BYTES),
    }
    return TopicSpec(name=names.history, configs=_kept_for(HISTORY_RETENTION_MS) | bounds)


def rejected_topic(names: Names) -> TopicSpec:
    """Rejected fragments (shared/model/rejects.py); records carry the broker's append time."""
    bounds = {"segment.ms": str(REJECTED_SEGMENT_MS), "retention.bytes": str(REJECTED_RETENTION_BYTES)}
    return TopicSpec(name=names.rejected, configs=_kept_for(REJECTED_RETENTION_MS) | _BROKER_TIME | bounds)


def queue_topic(names: Names, queue: str, partitions: int) -> TopicSpec:
    """The items of a queue; its workers delete those that are done."""
    configs = _kept_for(-1) | _BROKER_TIME | _LARGE_RECORDS | {"retention.bytes": "-1"}
    return TopicSpec(name=names.queue(queue), partitions=partitions, configs=configs)


def queue_log_topic(names: Names, queue: str) -> TopicSpec:
    """The commands of a queue, in one partition: the broker's times in it are the queue's only clock."""
    sizes = {"retention.bytes": "-1", "segment.bytes": str(CHECKPOINTS_SEGMENT_BYTES)}
    return TopicSpec(
        name=names.queue_log(queue), configs=_kept_for(-1) | _BROKER_TIME | _LARGE_RECORDS | sizes
    )


def needed_insync(replication: int) -> int:
    """The `min.insync.replicas` of a topic: 2, so that a record outlives a broker, if it has 2 replicas."""
    return min(2, replication)


async def ensure_topics(
    kafka: Kafka, specs: Iterable[TopicSpec], replication: int, *, all_or_none: bool = False
) -> list[str]:
    """Creates the topics that do not exist yet and returns their names; does not change existing ones.

    Warns if existing ones acknowledge too early (`needed_insync`). Returns normally if another process
    creates a topic first. Raises KafkaUnavailable, or InvalidInput when Kafka rejects a topic.
    """
    insync = {MIN_INSYNC: str(needed_insync(replication))}
    specs = [dataclasses.replace(spec, configs={**spec.configs, **insync}) for spec in specs]
    async with Cluster(kafka) as cluster:
        is_new = await create_topics(cluster, specs, replication, all_or_none=all_or_none)
        if existing := [name for name in is_new if not is_new[name]]:
            # only for a warning, so no reason to fail: a broker may forbid it
            with contextlib.suppress(KafkaUnavailable):
                await _warn_of_early_acknowledgements(cluster, existing, replication)
    return [name for name in is_new if is_new[name]]


async def _warn_of_early_acknowledgements(cluster: Cluster, names: Sequence[str], replication: int) -> None:
    # the effective values: a topic without one of its own has the broker's
    settings = await read_settings(cluster, names, [MIN_INSYNC])
    has = {name: int(found[MIN_INSYNC].value) for name, found in settings.items() if MIN_INSYNC in found}
    # an operator may have created it with more replicas than this service is set to
    replicas = await count_replicas(cluster, names)
    needs = {name: needed_insync(max([replication, *counts])) for name, counts in replicas.items()}
    weak = [f"{name} has {has[name]}" for name in names if has.get(name, 2) < needs.get(name, 0)]
    if weak:
        shown = ", ".join(weak[:SHOWN_TOPICS])
        fields = {"topics": shown, "count": len(weak), "needed": max(needs.values())}
        logger.warning("min.insync.replicas too low", extra=fields)


async def list_topics(kafka: Kafka) -> list[str]:
    """The names of all topics. Raises KafkaUnavailable."""
    async with Cluster(kafka) as cluster:
        return await list_all(cluster)
