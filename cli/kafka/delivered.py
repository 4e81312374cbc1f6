"""Reads a topic of finished sessions: its newest, new ones as they are delivered, or all of them.

Reads `read_committed`, so a session of an aborted transaction never shows. The newest are found from the end
backwards, in windows that double, so the work depends on how many are wanted and not on the topic's size.
Used by `baton sessions`; the demo and the end-to-end tests compare all sessions with what they should be.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from aiokafka import AIOKafkaConsumer, TopicPartition

from shared.errors import BatonError
from shared.kafka.clients import CALL_TIMEOUT_S, discard_consumer, started_consumer, translated
from shared.kafka.topics import MAX_RECORD_BYTES, count_partitions
from shared.model.sessions import Session, parse_session

FIRST_WINDOW = 32
"""Offsets of the first window of a partition; transaction markers take offsets, too."""
LARGEST_WINDOW = 4096
FETCH_WAIT_MS = 500
STALL_S = 30.0
"""Longest wait for the next records below the end; an open transaction holds readers back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """A session with its record's partition, offset and time (ms; when the owner wrote it)."""

    partition: int
    offset: int
    time_ms: int
    session: Session

    @property
    def order(self) -> tuple[int, int, int]:
        """Sorts by time, and within a partition by offset."""
        return self.time_ms, self.partition, self.offset


class DeliveredSessions:
    """The topic as it was when opened: `bounds` are the half-open offsets (first, end) of each partition."""

    def __init__(self, consumer: AIOKafkaConsumer, topic: str, bounds: Mapping[int, tuple[int, int]]) -> None:
        self._consumer = consumer
        self._topic = topic
        self.bounds = bounds

    def __repr__(self) -> str:
        return f"<DeliveredSessions of {self._topic}: {dict(self.bounds)}>"

    async def newest(
        self, limit: int, since_ms: int, is_wanted: Callable[[Session], bool] = lambda _: True
    ) -> list[Delivered]:
        """The newest `limit` wanted sessions that are not older than `since_ms`, oldest first.

        Raises KafkaUnavailable, and BatonError on a record that is not a session.
        """
        found: list[Delivered] = []
        for partition, start in (await self._starts(since_ms)).items():
            # of one partition at a time, so that at most two partitions' sessions are in memory
            # the time again: Kafka's answer may be the end of a transaction, which is newer than its sessions
            one = await self._newest_of(
                partition, start, limit, lambda it: it.time_ms >= since_ms and is_wanted(it.session)
            )
            found = heapq.nlargest(limit, [*found, *one], key=lambda delivered: delivered.order)
        return sorted(found, key=lambda delivered: delivered.order)

    async def everything(self) -> AsyncIterator[Delivered]:
        """Every session, partition by partition, up to the end when the topic was opened.

        Raises KafkaUnavailable, and BatonError on a record that is not a session.
        """
        for partition, (first, end) in self.bounds.items():
            async for one in self._read(partition, first, end):
                yield one

    async def following(self) -> AsyncIterator[list[Delivered]]:
        """Every session that was delivered after the topic was opened, in batches, without end.

        Raises BatonError on a record that is not a session. Waits while Kafka is away.
        """
        for number, (_, end) in self.bounds.items():
            self._consumer.seek(self._partition(number), end)
        self._consumer.resume(*map(self._partition, self.bounds))
        while True:
            found = await self._consumer.getmany(timeout_ms=FETCH_WAIT_MS)
            if batch := sorted(_delivered(self._topic, found), key=lambda one: one.order):
                yield batch

    async def _starts(self, since_ms: int) -> dict[int, int]:
        times = {self._partition(number): since_ms for number in self.bounds}
        with translated("offsets of times cannot be read"):
            async with asyncio.timeout(CALL_TIMEOUT_S):
                found = await self._consumer.offsets_for_times(times)
        offsets = {partition.partition: one.offset for partition, one in found.items() if one is not None}
        return {n: max(first, min(end, offsets.get(n, end))) for n, (first, end) in self.bounds.items()}

    async def _newest_of(
        self, partition: int, start: int, limit: int, is_wanted: Callable[[Delivered], bool]
    ) -> list[Delivered]:
        found: list[Delivered] = []
        high, window = self.bounds[partition][1], max(FIRST_WINDOW, 2 * limit)
        while high > start and len(found) < limit:
            low = max(start, high - window)
            earlier = [one async for one in self._read(partition, low, high) if is_wanted(one)]
            found = [*earlier, *found][-limit:]
            high, window = low, min(2 * window, LARGEST_WINDOW)
        return found

    async def _read(self, partition: int, low: int, high: int) -> AsyncIterator[Delivered]:
        reading = self._partition(partition)
        self._consumer.pause(*map(self._partition, self.bounds))
        self._consumer.seek(reading, low)
        self._consumer.resume(reading)
        # by position: the last offset usually belongs to the end of a transaction, which is not a record
        while (at := await self._consumer.position(reading)) < high:
            with translated("sessions cannot be read"):
                found = await self._page(reading, at)
            for one in _delivered(self._topic, found):
                if one.offset < high:
                    yield one

    async def _page(self, reading: TopicPartition, at: int) -> Mapping[TopicPartition, Any]:
        async with asyncio.timeout(STALL_S):
            while True:
                found: Mapping[TopicPartition, Any] = await self._consumer.getmany(
                    reading, timeout_ms=FETCH_WAIT_MS
                )
                if found or await self._consumer.position(reading) != at:
                    return found

    def _partition(self, number: int) -> TopicPartition:
        return TopicPartition(self._topic, number)


@contextlib.asynccontextmanager
async def open_sessions(kafka: str, topic: str) -> AsyncIterator[DeliveredSessions]:
    """The topic as it is now. Raises KafkaUnavailable, also when there is no such topic."""
    partitions = [TopicPartition(topic, number) for number in range(await count_partitions(kafka, topic))]
    with translated(f"Kafka at {kafka} does not answer"):
        consumer = await started_consumer(
            kafka,
            isolation_level="read_committed",
            fetch_max_wait_ms=FETCH_WAIT_MS,
            max_partition_fetch_bytes=2 * MAX_RECORD_BYTES,
        )
    try:
        with translated("offsets cannot be read"):
            async with asyncio.timeout(CALL_TIMEOUT_S):
                consumer.assign(partitions)
                for partition in partitions:
                    consumer.seek(partition, 0)  # any position, so that aiokafka does not look one up
                consumer.pause(*partitions)
                firsts = await consumer.beginning_offsets(partitions)
                # the last stable offsets: below them every transaction has ended
                ends = await consumer.end_offsets(partitions)
        yield DeliveredSessions(
            consumer, topic, {one.partition: (firsts[one], ends[one]) for one in partitions}
        )
    finally:
        await discard_consumer(consumer)


def _delivered(topic: str, found: Mapping[TopicPartition, Iterable[Any]]) -> list[Delivered]:
    return [
        Delivered(
            partition=record.partition,
            offset=record.offset,
            time_ms=record.timestamp,
            session=_parsed(topic, record),
        )
        for records in found.values()
        for record in records
    ]


def _parsed(topic: str, record: Any) -> Session:
    try:
        return parse_session(record.value or b"")
    except msgspec.DecodeError as error:
        place = f"{topic}, partition {record.partition}, offset {record.offset}"
        raise BatonError(f"{place} does not hold a session: {error}") from None
