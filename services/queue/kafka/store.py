"""Queues on Kafka: creates, lists and deletes their topics, over connections that all queues share.

Logs and items have connections of their own, so that a large answer with items delays no command.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Self

from services.queue.kafka.cache import MAX_BYTES, ItemCaches
from services.queue.kafka.items import KafkaItemLog, Shared
from services.queue.kafka.log import KafkaCommandLog
from services.queue.ports import CommandLog
from shared.errors import Conflict, InvalidInput, KafkaUnavailable
from shared.kafka.admin.catalog import TopicSpec, count_replicas, delete_topics, list_all, read_settings
from shared.kafka.admin.committed import KafkaGroup
from shared.kafka.admin.topics import ensure_topics, queue_log_topic, queue_topic
from shared.kafka.connect.access import KafkaAccess
from shared.kafka.connect.cluster import Cluster
from shared.kafka.read.fetcher import Fetcher
from shared.kafka.send.sender import Sender
from shared.model.names import DEAD, Names

BATCH_BYTES = 1024 * 1024
FETCHED_BYTES = 16 * 1024 * 1024
logger = logging.getLogger(__name__)
_TIMES = "message.timestamp.type"


class KafkaQueueStore:
    """See `QueueStore`. Make it with `connected`."""

    def __init__(
        self,
        access: KafkaAccess,
        names: Names,
        *,
        replication: int,
        logs: _Lines,
        items: _Lines,
        max_cache_bytes: int,
    ) -> None:
        self._access, self._names, self._replication = access, names, replication
        self._logs, self._items = logs, items
        self._shared = Shared(ItemCaches(max_cache_bytes))

    @classmethod
    @contextlib.asynccontextmanager
    async def connected(
        cls,
        access: KafkaAccess,
        names: Names,
        *,
        replication: int,
        ack_timeout_s: float,
        max_cache_bytes: int = MAX_BYTES,
    ) -> AsyncIterator[Self]:
        """The store, whose connections are open during the block."""
        async with _lines(access, ack_timeout_s) as logs, _lines(access, ack_timeout_s) as items:
            yield cls(
                access,
                names,
                replication=replication,
                logs=logs,
                items=items,
                max_cache_bytes=max_cache_bytes,
            )

    async def list(self) -> list[str]:
        """See `QueueStore`."""
        topics = await list_all(self._logs.cluster)
        return sorted(name for topic in topics if (name := self._names.queue_of_log(topic)) is not None)

    async def create(self, name: str, *, over: str, partitions: int) -> None:
        """See `QueueStore`."""
        letters = f"{name}{DEAD}"
        own = [] if over else [queue_topic(self._names, name, partitions)]
        own.append(queue_topic(self._names, letters, 1))
        logs = [queue_log_topic(self._names, one) for one in (name, letters)]
        # what is wrong with a topic that is there is found before the others are created
        for log in logs:
            await self._check_clock(log.name)
        if not over:
            await self._check_partitions(own[0])
        # Kafka may reject a single one: `queue.mail_log` and `queue.mail.log` would share metrics
        await ensure_topics(self._access, [*own, *logs], self._replication, all_or_none=True)
        if not over:  # somebody else may have created them meanwhile
            await self._check_partitions(own[0])

    async def _check_partitions(self, items: TopicSpec) -> None:
        """Raises Conflict if the topic is there with other partitions."""
        found = await count_replicas(self._items.cluster, [items.name])
        if items.name in found and len(found[items.name]) != items.partitions:
            raise Conflict(f"the topic {items.name} is there, with {len(found[items.name])} partitions")

    async def _check_clock(self, log: str) -> None:
        """Raises InvalidInput if the log, which an operator has made, has the times of those who write."""
        with contextlib.suppress(KafkaUnavailable):  # there is none yet, or a broker forbids to ask
            found = await read_settings(self._logs.cluster, [log], [_TIMES])
            if _TIMES in found[log] and found[log][_TIMES].value != "LogAppendTime":
                raise InvalidInput(f"the topic {log} must have {_TIMES}=LogAppendTime: leases end by it")

    async def delete(self, name: str, *, over: str, log: CommandLog) -> None:
        """See `QueueStore`."""
        own = [] if over else [self._names.queue(name)]
        await log.check()
        await self._forget_offsets(self._names.queue_group(name))
        # the log last: without it there is no queue to be deleted, and a new one would have the old items
        for topic in [*own, self._names.queue_log(name)]:
            await log.check()
            await delete_topics(self._logs.cluster, [topic])

    async def _forget_offsets(self, name: str) -> None:
        """Deletes what was committed for Kafka's tools: a new queue of the name would look half done."""
        group = KafkaGroup(self._logs.cluster, name)
        try:
            if committed := await group.all_committed():
                await group.delete(committed.keys())
        except (KafkaUnavailable, InvalidInput) as error:  # the queue goes all the same
            logger.warning("offsets not deleted", extra={"group": name, "why": error.detail})

    async def count_partitions(self, over: str) -> int:
        """See `QueueStore`."""
        topic = self._names.topic(over)
        found = await count_replicas(self._items.cluster, [topic])
        if topic not in found:
            raise InvalidInput(f"there is no topic {topic}")
        return len(found[topic])

    def open_log(self, name: str) -> KafkaCommandLog:
        """See `QueueStore`."""
        lines = self._logs
        return KafkaCommandLog(lines.cluster, lines.fetcher, lines.sender, self._names.queue_log(name))

    async def open_items(
        self, name: str, *, over: str, partitions: int, frontier: Sequence[int]
    ) -> KafkaItemLog:
        """See `QueueStore`."""
        items = KafkaItemLog(
            self._items.cluster,
            self._items.fetcher,
            self._items.sender,
            topic=self._names.topic(over) if over else self._names.queue(name),
            group=self._names.queue_group(name),
            partitions=partitions,
            shared=self._shared,
        )
        try:
            await items.check(frontier)
        except BaseException:
            items.close()
            raise
        return items


class _Lines:
    """Connections to Kafka, with what reads and writes over them."""

    def __init__(self, cluster: Cluster, ack_timeout_s: float) -> None:
        self.cluster = cluster
        # read_committed, for topics that transactions write; others have none
        self.fetcher = Fetcher(cluster, max_bytes=FETCHED_BYTES, is_committed=True, pace_s=0)
        self.sender = Sender(cluster, deliver_s=ack_timeout_s, max_batch_bytes=BATCH_BYTES)


@contextlib.asynccontextmanager
async def _lines(access: KafkaAccess, ack_timeout_s: float) -> AsyncIterator[_Lines]:
    async with Cluster(access) as cluster:
        lines = _Lines(cluster, ack_timeout_s)
        try:
            yield lines
        finally:
            await lines.fetcher.close()
            await lines.sender.close()
