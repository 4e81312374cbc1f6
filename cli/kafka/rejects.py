"""The topic of rejects, read up to where it ended when it was opened; and how far a reason was sent again.

`baton rejected` lists from it and sends again from it (cli/rejects/replay.py). The place of a reason is the
committed offset of a Kafka group of its own, so it outlives whoever replays, and Kafka's own tools show and
move it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition

from shared.errors import KafkaUnavailable
from shared.kafka.clients import CALL_TIMEOUT_S, KAFKA_FAILURES, discard_consumer
from shared.kafka.topics import count_partitions
from shared.model.names import Names
from shared.model.rejects import Reject, parse_reject

PAGE_RECORDS = 500
POLL_S = 2.0
STALL_S = 20.0
"""Nothing came for so long although there is more: Kafka is away, or the reader stalls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredReject:
    """A reject in its place; `time_ms` is the broker's append time."""

    partition: int
    offset: int
    time_ms: int
    reject: Reject


class RejectedLog:
    """The topic's partitions from `first` to `end`, half-open, as they were when it was opened."""

    def __init__(self, consumer: AIOKafkaConsumer, topic: str, bounds: Mapping[int, tuple[int, int]]) -> None:
        self._consumer = consumer
        self._topic = topic
        self.bounds = bounds

    def __repr__(self) -> str:
        return f"<RejectedLog of {self._topic}: {dict(self.bounds)}>"

    async def starts(self, since_ms: int) -> dict[int, int]:
        """The first offset of each partition that is not older than `since_ms`; its end where none is.

        Raises KafkaUnavailable.
        """
        wanted = {self._partition(number): since_ms for number in self.bounds}
        with _failures("times cannot be looked up"):
            async with asyncio.timeout(CALL_TIMEOUT_S):
                found = await self._consumer.offsets_for_times(wanted)
        places = {partition.partition: place for partition, place in found.items() if place is not None}
        return {
            number: min(end, places[number].offset) if number in places else end
            for number, (_, end) in self.bounds.items()
        }

    async def read(self, partition: int, start: int) -> AsyncIterator[Sequence[StoredReject]]:
        """What a partition holds from `start` to its end, in pages. Raises KafkaUnavailable."""
        reading, (first, end) = self._partition(partition), self.bounds[partition]
        at = max(start, first)
        if at >= end:
            return
        self._consumer.pause(*(self._partition(number) for number in self.bounds))
        self._consumer.seek(reading, at)
        self._consumer.resume(reading)
        while at < end:
            with _failures("rejects cannot be read"):
                records = await self._page(reading)
            page = [
                StoredReject(
                    partition=partition,
                    offset=record.offset,
                    time_ms=record.timestamp,
                    reject=parse_reject(record.value, record.headers),
                )
                for record in records
                if record.offset < end
            ]
            at = records[-1].offset + 1
            if page:
                yield page

    async def place(self, partition: int) -> int | None:
        """Up to where the log's reason was sent again; None where it never was. Raises KafkaUnavailable."""
        with _failures("committed offsets cannot be read"):
            async with asyncio.timeout(STALL_S):
                place: int | None = await self._consumer.committed(self._partition(partition))
        return place

    async def keep_place(self, partition: int, offset: int) -> None:
        """All below `offset` was sent again; a place that another replay has kept further on stays.

        Raises KafkaUnavailable; then it may be kept or not.
        """
        kept = await self.place(partition)
        if kept is not None and kept >= offset:
            return
        with _failures("the place cannot be kept"):
            async with asyncio.timeout(STALL_S):
                await self._consumer.commit({self._partition(partition): offset})

    async def _page(self, reading: TopicPartition) -> Sequence[Any]:
        async with asyncio.timeout(STALL_S):
            while True:
                found = await self._consumer.getmany(
                    reading, timeout_ms=int(POLL_S * 1000), max_records=PAGE_RECORDS
                )
                records: Sequence[Any] = found.get(reading, ())
                if records:
                    return records

    def _partition(self, number: int) -> TopicPartition:
        return TopicPartition(self._topic, number)


@contextlib.asynccontextmanager
async def open_rejected(kafka: str, names: Names, *, reason: str | None = None) -> AsyncIterator[RejectedLog]:
    """The topic of rejects as it is now; with a reason, also that reason's place.

    Raises KafkaUnavailable, also when there is no such topic yet.
    """
    topic = names.rejected
    count = await count_partitions(kafka, topic)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=kafka,
        group_id=None if reason is None else names.replay(reason),
        enable_auto_commit=False,
        # what retention took in the meantime is left out
        auto_offset_reset="earliest",
        request_timeout_ms=int(CALL_TIMEOUT_S * 1000),
        retry_backoff_ms=20,
    )
    try:
        partitions = [TopicPartition(topic, number) for number in range(count)]
        with _failures(f"Kafka at {kafka} does not answer"):
            async with asyncio.timeout(STALL_S):
                await consumer.start()
                consumer.assign(partitions)
                for partition in partitions:
                    consumer.seek(partition, 0)  # a position: none has to be looked up
                consumer.pause(*partitions)
                firsts = await consumer.beginning_offsets(partitions)
                ends = await consumer.end_offsets(partitions)
        yield RejectedLog(consumer, topic, {p.partition: (firsts[p], ends[p]) for p in partitions})
    finally:
        await discard_consumer(consumer)


@contextlib.contextmanager
def _failures(what: str) -> Iterator[None]:
    try:
        yield
    except KAFKA_FAILURES as error:
        raise KafkaUnavailable(f"{what}: {error!r}") from None
