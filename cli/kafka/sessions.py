"""Reads a topic of finished sessions: its newest, new ones as they are delivered, or all of them.

Reads `read_committed`, so a session of an aborted transaction never shows. The newest are found from the end
backwards, in windows that double, so the work depends on how many are wanted and not on the topic's size.
Used by `baton sessions`; the demo and the end-to-end tests compare all sessions with what they should be.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from cli.kafka.bounds import Bounds, bounds_of, starts_since
from cli.kafka.connection import connected
from shared.errors import BatonError
from shared.kafka.connect.access import Kafka
from shared.kafka.connect.cluster import Cluster
from shared.kafka.read.fetcher import Fetcher
from shared.kafka.read.ranges import read_range
from shared.model.sessions import Session, parse_session

FIRST_WINDOW = 32
"""Offsets of the first window of a partition; transaction markers take offsets, too."""
LARGEST_WINDOW = 4096
FOLLOWED_AT_ONCE = 500
FOLLOW_POLL_S = 0.1
"""How often new sessions are shown; the fetcher has asked for them all the while."""


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

    def __init__(self, cluster: Cluster, topic: str, bounds: Bounds) -> None:
        self._cluster = cluster
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
        starts = await starts_since(self._cluster, self._topic, self.bounds, since_ms)
        for partition, start in starts.items():
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
        fetcher = Fetcher(self._cluster, is_committed=True)
        readings = [fetcher.read(self._topic, number, end) for number, (_, end) in self.bounds.items()]
        try:
            while True:
                batch = [
                    self._delivered(reading.partition, record)
                    for reading in readings
                    for record in await reading.take(0, FOLLOWED_AT_ONCE)
                ]
                if batch:
                    yield sorted(batch, key=lambda one: one.order)
                else:
                    await asyncio.sleep(FOLLOW_POLL_S)
        finally:
            await fetcher.close()

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
        place = self._topic, partition
        async for record in read_range(self._cluster, place, low, high - 1, is_committed=True):
            yield self._delivered(partition, record)

    def _delivered(self, partition: int, record: Any) -> Delivered:
        return Delivered(
            partition=partition,
            offset=record.offset,
            time_ms=record.timestamp,
            session=self._parsed(partition, record),
        )

    def _parsed(self, partition: int, record: Any) -> Session:
        try:
            return parse_session(record.value or b"")
        except msgspec.DecodeError as error:
            place = f"{self._topic}, partition {partition}, offset {record.offset}"
            raise BatonError(f"{place} does not hold a session: {error}") from None


@contextlib.asynccontextmanager
async def open_sessions(kafka: Kafka, topic: str) -> AsyncIterator[DeliveredSessions]:
    """The topic as it is now. Raises KafkaUnavailable, also when there is no such topic."""
    async with connected(kafka) as cluster:
        # below these ends every transaction has ended
        yield DeliveredSessions(cluster, topic, await bounds_of(cluster, topic, is_committed=True))
