"""Writes the commits of owned streams to Kafka: one transactional producer per stream.

A commit is one transaction: the sessions closed since the last one, the checkpoint records, and the
safe offset with the head as its metadata. Starting a stream's producer fences the one of every
earlier owner, so only after `open` is what `load` reads the truth. `delivery` decides whether the
sessions ride inside the transaction, before it or after it (design section 5).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import RecordsToDelete
from aiokafka.errors import IllegalOperation, ProducerFenced
from aiokafka.structs import OffsetAndMetadata

from services.consumer.adapters.kafka_shared import PRODUCER_OPTIONS, SharedClients, translated
from services.consumer.core.checkpoint import Checkpoint, Commit, find_head, fold, new_stream
from services.consumer.log_ports import Fenced
from shared.errors import KafkaUnavailable
from shared.fragments import encode_marker
from shared.group import GroupSettings
from shared.heads import Head
from shared.kafka import KAFKA_FAILURES, MAX_RECORD_BYTES, discard_producer
from shared.kafka_brokers import prepare_producer, start_prepared
from shared.kafka_consumers import discard_consumer

log = logging.getLogger(__name__)

START_TIMEOUT_S = 15.0
"""A predecessor that died inside a transaction holds InitProducerId back for some 30 ms."""
COMMIT_TIMEOUT_S = 10.0
TRANSACTION_TIMEOUT_MS = 12_000
"""Longer than a commit may take, short enough that a dead owner does not hold readers back for long."""
CLOSE_TIMEOUT_S = 2.0


class KafkaSessionSink:
    """One stream's sink (port `SessionSink`)."""

    def __init__(
        self, shared: SharedClients, stream: int, settings: GroupSettings, session_partitions: int
    ) -> None:
        self._shared = shared
        self._stream = stream
        self._settings = settings
        names, group = shared.names, shared.group
        self._fragments = TopicPartition(names.fragments(stream), 0)
        self._checkpoints = TopicPartition(names.checkpoints(group), stream)
        self._sessions = TopicPartition(names.sessions(group), stream % session_partitions)
        self._kafka_group = names.kafka_group(group)
        self._producer = AIOKafkaProducer(
            bootstrap_servers=shared.kafka,
            transactional_id=names.transactional_id(group, stream),
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            **PRODUCER_OPTIONS,
        )
        self._is_prepared = False
        shared.brokers.lend(self._producer.client)

    def __repr__(self) -> str:
        return f"<KafkaSessionSink {self._shared.group}/{self._stream}>"

    async def prepare(self) -> None:
        with translated(f"{self!r} cannot be prepared"):
            async with asyncio.timeout(START_TIMEOUT_S):
                await prepare_producer(self._producer)
        self._is_prepared = True

    async def open(self) -> None:
        with translated(f"{self!r} cannot start"):
            async with asyncio.timeout(START_TIMEOUT_S):
                if self._is_prepared:
                    await start_prepared(self._producer)
                else:
                    await self._producer.start()

    async def head(self) -> Head:
        head = await self._shared.head(self._stream)
        if head is None:
            first, end = await self._shared.checkpoint_bounds(self._checkpoints)
            if end > 0:
                head = find_head([pair async for pair in self._records(first, end - 1)])
            if head is not None:
                log.warning("found a forgotten head", extra={"stream": self._stream, "head": head})
        return new_stream().head if head is None else head

    async def load(self, head: Head) -> Checkpoint:
        if head.ck < 0:
            return Checkpoint(head=head)
        records = [pair async for pair in self._records(head.ck, head.last)]
        return fold(head, records, self._settings.repeat_ms)

    async def commit(self, commit: Commit) -> list[int]:
        delivery = self._settings.delivery
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
            if self._settings.delivery == "exactly_once":  # else sessions may be under way in it
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

    async def _records(self, first: int, last: int) -> AsyncIterator[tuple[int, bytes]]:
        """The committed checkpoint records from offset `first` through `last`."""
        if last < first:
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
        self._shared.brokers.lend(consumer._client)
        try:
            with translated(f"{self!r} cannot read its checkpoint"):
                async with asyncio.timeout(START_TIMEOUT_S):
                    await consumer.start()
                    consumer.assign([self._checkpoints])
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
            await discard_consumer(consumer)


def _look_at(sent: asyncio.Future[Any]) -> None:
    """Takes notice of a send's failure, so that asyncio does not complain that nobody did."""
    if not sent.cancelled():
        sent.exception()
