"""Writes the commits of owned streams to Kafka: one transactional producer per stream.

A commit is one transaction: the sessions closed since the last one, the checkpoint records, and the
safe offset with the head as its metadata. Starting a stream's producer fences the one of every
earlier owner, so only after `open` is what `load` reads the truth. `delivery` decides whether the
sessions ride inside the transaction, before it or after it (design section 5).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.errors import IllegalOperation, ProducerFenced
from aiokafka.structs import OffsetAndMetadata

from services.consumer.adapters.kafka_source import KafkaFragmentReader, translated
from services.consumer.core.checkpoint import Checkpoint, Commit, find_head, fold, new_stream
from services.consumer.log_ports import Fenced, FragmentReader, SessionSink
from shared.errors import KafkaUnavailable
from shared.fragments import encode_marker
from shared.group import GroupSettings
from shared.heads import Head
from shared.kafka import KAFKA_FAILURES, MAX_RECORD_BYTES, discard_producer, read_heads
from shared.kafka_bounds import LogBounds
from shared.names import Names

log = logging.getLogger(__name__)

START_TIMEOUT_S = 15.0
"""A predecessor that died inside a transaction holds InitProducerId back for some 30 ms."""
COMMIT_TIMEOUT_S = 10.0
TRANSACTION_TIMEOUT_MS = 12_000
"""Longer than a commit may take, short enough that a dead owner does not hold readers back for long."""
CLOSE_TIMEOUT_S = 2.0
PRODUCER_OPTIONS = {
    "acks": "all",
    "linger_ms": 0,
    "max_batch_size": 1024 * 1024,
    "max_request_size": MAX_RECORD_BYTES,
    "request_timeout_ms": 10_000,
    "retry_backoff_ms": 10,
}


class KafkaStreamLog:
    """Makes readers and sinks of a group's streams; keeps the clients that they share (port `StreamLog`)."""

    def __init__(
        self, kafka: str, names: Names, group: str, settings: GroupSettings, session_partitions: int
    ) -> None:
        self.kafka, self.names, self.group, self.settings = kafka, names, group, settings
        self.session_partitions = session_partitions
        self._admin: AIOKafkaAdminClient | None = None
        self._plain: AIOKafkaProducer | None = None
        self._lock = asyncio.Lock()
        self._bounds = LogBounds(kafka)

    def reader(self, stream: int) -> FragmentReader:
        return KafkaFragmentReader(self.kafka, self.names, stream)

    def sink(self, stream: int) -> SessionSink:
        return KafkaSessionSink(self, stream)

    async def ends(self, count: int) -> Mapping[int, int]:
        partitions = [TopicPartition(self.names.fragments(n), 0) for n in range(count)]
        ends = await self._bounds.ends(partitions)
        return {stream: ends[partition] for stream, partition in enumerate(partitions)}

    async def was_ever_written(self, partition: TopicPartition) -> bool:
        """Whether anything was ever written to the partition. Raises KafkaUnavailable."""
        return (await self._bounds.ends([partition]))[partition] > 0

    async def close(self) -> None:
        await self._bounds.close()
        await self.drop(self._admin)
        await self.drop(self._plain)

    async def admin(self) -> AIOKafkaAdminClient:
        """The shared admin client, started. Raises KafkaUnavailable."""
        async with self._lock:
            if self._admin is None:
                admin = AIOKafkaAdminClient(bootstrap_servers=self.kafka, request_timeout_ms=10_000)
                try:
                    with translated("the admin client cannot start"):
                        async with asyncio.timeout(START_TIMEOUT_S):
                            await admin.start()
                except BaseException:
                    await _close_admin(admin)
                    raise
                self._admin = admin
            return self._admin

    async def plain_producer(self) -> AIOKafkaProducer:
        """The shared producer without a transaction (ticks; sessions of the weaker deliveries)."""
        async with self._lock:
            if self._plain is None:
                producer = AIOKafkaProducer(
                    bootstrap_servers=self.kafka, enable_idempotence=True, **PRODUCER_OPTIONS
                )
                try:
                    with translated("the plain producer cannot start"):
                        async with asyncio.timeout(START_TIMEOUT_S):
                            await producer.start()
                except BaseException:
                    await discard_producer(producer)
                    raise
                self._plain = producer
            return self._plain

    async def drop(self, client: AIOKafkaAdminClient | AIOKafkaProducer | None) -> None:
        """Throws a shared client away after a failure, unless another one stands in its place already."""
        async with self._lock:
            if client is not None and client is self._admin:
                self._admin = None
            elif client is not None and client is self._plain:
                self._plain = None
            else:
                return
        if isinstance(client, AIOKafkaProducer):
            await discard_producer(client)
        else:
            await _close_admin(client)


async def _close_admin(admin: AIOKafkaAdminClient) -> None:
    with contextlib.suppress(*KAFKA_FAILURES):
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            await admin.close()


class KafkaSessionSink:
    """One stream's sink (port `SessionSink`)."""

    def __init__(self, shared: KafkaStreamLog, stream: int) -> None:
        self._shared = shared
        self._stream = stream
        names, group = shared.names, shared.group
        self._fragments = TopicPartition(names.fragments(stream), 0)
        self._checkpoints = TopicPartition(names.checkpoints(group), stream)
        self._sessions = TopicPartition(names.sessions(group), stream % shared.session_partitions)
        self._kafka_group = names.kafka_group(group)
        self._producer = AIOKafkaProducer(
            bootstrap_servers=shared.kafka,
            transactional_id=names.transactional_id(group, stream),
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            **PRODUCER_OPTIONS,
        )

    def __repr__(self) -> str:
        return f"<KafkaSessionSink {self._shared.group}/{self._stream}>"

    async def open(self) -> None:
        with translated(f"{self!r} cannot start"):
            async with asyncio.timeout(START_TIMEOUT_S):
                await self._producer.start()

    async def head(self) -> Head:
        shared = self._shared
        admin = await shared.admin()
        try:
            heads = await read_heads(admin, shared.names, shared.group, [self._stream])
        except KafkaUnavailable:
            await shared.drop(admin)
            raise
        head = heads.get(self._stream)
        if head is None and await shared.was_ever_written(self._checkpoints):
            head = find_head([pair async for pair in self._records(0, None)])
            if head is not None:
                log.warning("found a forgotten head", extra={"stream": self._stream, "head": head})
        return new_stream().head if head is None else head

    async def load(self, head: Head) -> Checkpoint:
        if head.ck < 0:
            return Checkpoint(head=head)
        records = [pair async for pair in self._records(head.ck, head.last)]
        return fold(head, records, self._shared.settings.repeat_ms)

    async def commit(self, commit: Commit) -> list[int]:
        delivery = self._shared.settings.delivery
        try:
            async with asyncio.timeout(COMMIT_TIMEOUT_S):
                if delivery == "at_least_once":
                    await self._deliver_apart(commit.sessions)
                offsets = await self._transaction(commit, with_sessions=delivery == "exactly_once")
                if delivery == "at_most_once":
                    await self._deliver_apart(commit.sessions)
                return offsets
        except ProducerFenced as error:
            raise Fenced(f"{self!r}: {error!r}") from error
        except (*KAFKA_FAILURES, AssertionError, IllegalOperation) as error:
            # after being fenced, aiokafka complains of its own state instead of saying so
            raise KafkaUnavailable(f"{self!r}, outcome of a commit unknown: {error!r}") from error

    async def tick(self) -> None:
        producer = None
        try:
            producer = await self._shared.plain_producer()
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await producer.send_and_wait(self._fragments.topic, value=encode_marker(None), partition=0)
        except (*KAFKA_FAILURES, KafkaUnavailable) as error:
            log.warning("no tick", extra={"stream": self._stream, "why": repr(error)})
            if self._shared.settings.delivery == "exactly_once":  # else sessions may be under way in it
                await self._shared.drop(producer)

    async def trim(self, below: int) -> None:
        try:
            admin = await self._shared.admin()
            async with asyncio.timeout(COMMIT_TIMEOUT_S):
                await admin.delete_records({self._checkpoints: RecordsToDelete(before_offset=below)})
        except (*KAFKA_FAILURES, KafkaUnavailable) as error:
            log.warning("checkpoints not trimmed", extra={"stream": self._stream, "why": repr(error)})

    async def close(self) -> None:
        await discard_producer(self._producer)

    async def _transaction(self, commit: Commit, *, with_sessions: bool) -> list[int]:
        """All sends are awaited before the offsets are added: otherwise the broker refuses some."""
        producer = self._producer
        await producer.begin_transaction()
        sends: list[asyncio.Future[Any]] = []
        recorded: list[asyncio.Future[Any]] = []
        try:
            if with_sessions:
                for key, value in commit.sessions:
                    sends.append(await self._send(producer, self._sessions, value, key))
            for raw in commit.records:
                recorded.append(await self._send(producer, self._checkpoints, raw))  # noqa: PERF401
            results = await asyncio.gather(*recorded)
            await asyncio.gather(*sends)
        finally:
            for sent in (*sends, *recorded):
                sent.add_done_callback(_look_at)  # one failure is told; the others are of the same cause
        offsets = [result.offset for result in results]
        head = commit.head_at(offsets)
        await producer.send_offsets_to_transaction(
            {self._fragments: OffsetAndMetadata(head.safe_offset, head.metadata())}, self._kafka_group
        )
        await producer.commit_transaction()
        return offsets

    async def _deliver_apart(self, sessions: Sequence[tuple[bytes, bytes]]) -> None:
        """Sends the sessions outside of the transaction, by the producer that all streams share."""
        if not sessions:
            return
        producer = await self._shared.plain_producer()
        try:
            await asyncio.gather(
                *[await self._send(producer, self._sessions, value, key) for key, value in sessions]
            )
        except BaseException:
            await self._shared.drop(producer)
            raise

    @staticmethod
    async def _send(
        producer: AIOKafkaProducer, to: TopicPartition, value: bytes, key: bytes | None = None
    ) -> asyncio.Future[Any]:
        sent: asyncio.Future[Any] = await producer.send(
            to.topic, value=value, key=key, partition=to.partition
        )
        return sent

    async def _records(self, first: int, last: int | None) -> AsyncIterator[tuple[int, bytes]]:
        """Committed checkpoint records from offset `first` through `last` (None: all there are)."""
        if last is not None and last < first:
            return
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._shared.kafka,
            group_id=None,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            fetch_max_wait_ms=200,
            max_partition_fetch_bytes=4 * MAX_RECORD_BYTES,
            retry_backoff_ms=20,
        )
        try:
            with translated(f"{self!r} cannot read its checkpoint"):
                async with asyncio.timeout(START_TIMEOUT_S):
                    await consumer.start()
                    consumer.assign([self._checkpoints])
                    if last is None:
                        first = (await consumer.beginning_offsets([self._checkpoints]))[self._checkpoints]
                        last = (await consumer.end_offsets([self._checkpoints]))[self._checkpoints] - 1
                    consumer.seek(self._checkpoints, first)
                loop = asyncio.get_running_loop()
                patience_s = loop.time() + START_TIMEOUT_S
                while first <= last:
                    async with asyncio.timeout(START_TIMEOUT_S):
                        found = await consumer.getmany(timeout_ms=500)
                        for record in found.get(self._checkpoints, ()):
                            if record.offset <= last:
                                yield record.offset, record.value
                        before, first = first, await consumer.position(self._checkpoints)
                    if first > before:
                        patience_s = loop.time() + START_TIMEOUT_S
                    elif loop.time() > patience_s:
                        raise KafkaUnavailable(f"{self!r}: no checkpoint record {first} to be had, of {last}")
        finally:
            with contextlib.suppress(*KAFKA_FAILURES):
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    await consumer.stop()


def _look_at(sent: asyncio.Future[Any]) -> None:
    """Takes notice of a send's failure, so that asyncio does not complain that nobody did."""
    if not sent.cancelled():
        sent.exception()
