"""Reads the topic of rejects up to its end at opening time, and keeps how far each reason was replayed.

`baton rejected` lists rejects from it and sends them again (cli/rejects/replay.py). Each reason has a Kafka
consumer group whose committed offset says how far it was replayed. It survives the process, and Kafka's own
tools can show and move it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.structs import OffsetAndMetadata

from shared.kafka.clients import CALL_TIMEOUT_S, discard_consumer, discard_producer, translated
from shared.kafka.heads import committed_offsets
from shared.kafka.topics import admin_client, count_partitions
from shared.model.names import Names
from shared.model.rejects import Reject, parse_reject

PAGE_RECORDS = 500
POLL_MS = 2000
DISMISSED_AT_ONCE = 1000
"""Rejects that one record dismisses: about 40 KB."""
_DISMISSES = "dismisses"
STALL_S = 20.0
"""If no record arrives for this long although there are more, Kafka is unavailable or the consumer hangs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredReject:
    """A reject with its partition and offset; `time_ms` is the broker's append time.

    `dismisses`: the rejects that an operator dismissed with this record, which is then no reject itself.
    """

    partition: int
    offset: int
    time_ms: int
    reject: Reject
    dismisses: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """How far a reason was replayed: up to `offset`.

    `appended_ms` is the append time of the record before, by which its log is recognized; None if an earlier
    version stored the place.
    """

    offset: int
    appended_ms: int | None = None


class RejectedLog:
    """The topic as it was when opened.

    `bounds` are the half-open offsets (first, end) of each partition, `opened_at` the places of the reason.
    These were read first, so one beyond the end belongs to another log.
    """

    def __init__(
        self,
        consumer: AIOKafkaConsumer,
        topic: str,
        bounds: Mapping[int, tuple[int, int]],
        opened_at: Mapping[int, Place],
    ) -> None:
        self._consumer = consumer
        self._topic = topic
        self._forgotten: set[int] = set()
        self.bounds = bounds
        self.opened_at = opened_at

    def __repr__(self) -> str:
        return f"<RejectedLog of {self._topic}: {dict(self.bounds)}>"

    async def starts(self, since_ms: int) -> dict[int, int]:
        """The first offset of each partition that is not older than `since_ms`; its end if all are older.

        Raises KafkaUnavailable.
        """
        times = {self._partition(number): since_ms for number in self.bounds}
        with translated("offsets of times cannot be read"):
            async with asyncio.timeout(CALL_TIMEOUT_S):
                found = await self._consumer.offsets_for_times(times)
        offsets = {partition.partition: one.offset for partition, one in found.items() if one is not None}
        return {number: min(end, offsets.get(number, end)) for number, (_, end) in self.bounds.items()}

    async def read(self, partition: int, start: int) -> AsyncIterator[Sequence[StoredReject]]:
        """The rejects of a partition from `start` to its end, in pages. Raises KafkaUnavailable."""
        reading, (first, end) = self._partition(partition), self.bounds[partition]
        at = max(start, first)
        if at >= end:
            return
        # one partition at a time: its records come in order, and the others are not buffered
        self._consumer.pause(*(self._partition(number) for number in self.bounds))
        self._consumer.seek(reading, at)
        self._consumer.resume(reading)
        while at < end:
            with translated("rejects cannot be read"):
                records = await self._page(reading)
            page = [
                StoredReject(
                    partition=partition,
                    offset=record.offset,
                    time_ms=record.timestamp,
                    reject=parse_reject(record.value, record.headers),
                    dismisses=_dismissals(record),
                )
                for record in records
                # what was appended meanwhile may be our own rejects, and would be replayed without end
                if record.offset < end
            ]
            # from the record, not by counting: retention may delete some while we read
            at = records[-1].offset + 1
            if page:
                yield page

    def forget(self, partition: int) -> None:
        """Makes the next commit replace the place, however far that was: it belongs to another log."""
        self._forgotten.add(partition)

    async def commit(self, partition: int, place: Place) -> None:
        """Records that everything below the place was replayed; a higher one of another replay stays.

        Raises KafkaUnavailable; then it is unknown whether the place was committed.
        """
        where = self._partition(partition)
        # two replays at once must not set each other back
        if partition not in self._forgotten and await self._committed(where) >= place.offset:
            return
        metadata = "" if place.appended_ms is None else str(place.appended_ms)
        with translated("the offset cannot be committed"):
            async with asyncio.timeout(STALL_S):
                await self._consumer.commit({where: (place.offset, metadata)})
        self._forgotten.discard(partition)

    async def _committed(self, where: TopicPartition) -> int:
        with translated("committed offsets cannot be read"):
            async with asyncio.timeout(STALL_S):
                return await self._consumer.committed(where) or 0

    async def _page(self, reading: TopicPartition) -> Sequence[Any]:
        async with asyncio.timeout(STALL_S):
            while True:
                found = await self._consumer.getmany(reading, timeout_ms=POLL_MS, max_records=PAGE_RECORDS)
                if records := found.get(reading):
                    return list(records)

    def _partition(self, number: int) -> TopicPartition:
        return TopicPartition(self._topic, number)


async def dismiss_rejects(kafka: str, names: Names, identities: Iterable[str]) -> None:
    """Appends records to the topic that dismiss these rejects. Raises KafkaUnavailable.

    They are kept for as long as the rejects, because they are newer. No client can write such a record: it is
    marked by a header.
    """
    found = list(identities)
    producer = AIOKafkaProducer(
        bootstrap_servers=kafka, acks="all", request_timeout_ms=int(CALL_TIMEOUT_S * 1000)
    )
    try:
        with translated("rejects cannot be dismissed"):
            async with asyncio.timeout(STALL_S):
                await producer.start()
                for at in range(0, len(found), DISMISSED_AT_ONCE):
                    value = "\n".join(found[at : at + DISMISSED_AT_ONCE]).encode()
                    await producer.send_and_wait(names.rejected, value, headers=[(_DISMISSES, b"1")])
    finally:
        await discard_producer(producer)


def _dismissals(record: Any) -> frozenset[str]:
    if _DISMISSES not in dict(record.headers):
        return frozenset()
    return frozenset((record.value or b"").decode(errors="replace").split())


@contextlib.asynccontextmanager
async def open_rejected(
    kafka: str, names: Names, *, reason: str | None = None, is_from_start: bool = False
) -> AsyncIterator[RejectedLog]:
    """The topic of rejects as it is now; with a reason, also how far that reason was replayed.

    With `is_from_start` it forgets that, and a replay sends everything again.

    Raises KafkaUnavailable, also when the topic does not exist yet.
    """
    topic = names.rejected
    partitions = [TopicPartition(topic, number) for number in range(await count_partitions(kafka, topic))]
    places = {} if reason is None or is_from_start else await _places(kafka, names.replay(reason), partitions)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=kafka,
        group_id=None if reason is None else names.replay(reason),
        enable_auto_commit=False,
        # skip what retention deletes while we read
        auto_offset_reset="earliest",
        request_timeout_ms=int(CALL_TIMEOUT_S * 1000),
        retry_backoff_ms=20,
    )
    try:
        with translated(f"Kafka at {kafka} does not answer"):
            async with asyncio.timeout(STALL_S):
                await consumer.start()
                consumer.assign(partitions)
                for partition in partitions:
                    consumer.seek(partition, 0)  # any position, so that aiokafka does not look one up
                consumer.pause(*partitions)
                firsts = await consumer.beginning_offsets(partitions)
                ends = await consumer.end_offsets(partitions)
        yield RejectedLog(consumer, topic, {p.partition: (firsts[p], ends[p]) for p in partitions}, places)
    finally:
        await discard_consumer(consumer)


async def _places(kafka: str, group: str, partitions: Sequence[TopicPartition]) -> dict[int, Place]:
    async with admin_client(kafka) as admin:
        found = await committed_offsets(admin, group, partitions)
    return {where.partition: _place(one) for where, one in found.items() if one.offset >= 0}


def _place(committed: OffsetAndMetadata) -> Place:
    # Kafka's tools move offsets without metadata
    appended_ms = int(committed.metadata) if committed.metadata.isdigit() else None
    return Place(offset=committed.offset, appended_ms=appended_ms)
