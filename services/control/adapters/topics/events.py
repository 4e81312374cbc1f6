"""Reads the topic `baton.events` into the feed: from its beginning, without end, through any outage.

Whenever no record arrives for a while, it asks for the log's bounds; if its position is outside of them, it
begins anew.
"""

from __future__ import annotations

import asyncio
import logging

from services.control.live.feed.feed import EventFeed
from shared.backoff import Backoff
from shared.errors import BatonError, KafkaUnavailable
from shared.kafka.admin.topics import ensure_topics, events_topic
from shared.kafka.connect.access import Kafka
from shared.kafka.connect.cluster import Cluster
from shared.kafka.read.fetcher import Fetcher
from shared.kafka.read.offsets import EARLIEST, LATEST, list_offsets
from shared.kafka.read.reading import Reading
from shared.model.names import Names

POLL_S = 2.0
MAX_RECORDS = 2_000

logger = logging.getLogger(__name__)


class KafkaEvents:
    """Fills `feed` while `run()` runs; creates the topic if it is missing."""

    def __init__(self, kafka: Kafka, names: Names, feed: EventFeed, *, replication: int) -> None:
        self._kafka = kafka
        self._names = names
        self._feed = feed
        self._replication = replication
        self._topic = names.events
        self._has_begun = False

    def __repr__(self) -> str:
        return f"<KafkaEvents of {self._topic} at {self._kafka}>"

    async def run(self) -> None:
        """Reads until cancelled."""
        cluster = Cluster(self._kafka)
        fetcher = Fetcher(cluster)
        try:
            await self._read_until_cancelled(cluster, fetcher)
        finally:
            await fetcher.close()
            await cluster.close()

    async def _read_until_cancelled(self, cluster: Cluster, fetcher: Fetcher) -> None:
        backoff = Backoff(first_s=0.2, cap_s=3.0)
        logged = ""
        while True:
            try:
                await ensure_topics(self._kafka, [events_topic(self._names)], self._replication)
                first, end = await self._bounds(cluster)
                # outside of the log: the topic was recreated, or retention has passed us
                if not self._has_begun or not first <= self._feed.recent_events.next_id <= end:
                    self._feed.begin(first)
                    self._has_begun = True
                reading = fetcher.read(self._topic, 0, self._feed.recent_events.next_id)
                backoff.reset()
                logged = ""
                try:
                    await self._read(cluster, reading, end)
                finally:
                    fetcher.forget(reading)
            # control must not stop for the sake of its history
            except Exception as error:
                why = error.detail if isinstance(error, BatonError) else repr(error)
                self._feed.mark_failed(why)
                if why != logged:
                    logger.warning("events unread", extra={"why": why})
                logged = why
            await asyncio.sleep(backoff.next_s())

    async def _read(self, cluster: Cluster, reading: Reading, end: int) -> None:
        """Receives records from where the feed stands. Raises KafkaUnavailable, also when nothing arrives."""
        recent_events = self._feed.recent_events
        while True:
            if recent_events.next_id >= end:
                self._feed.mark_current()
            found = await reading.take(POLL_S, MAX_RECORDS)
            # after a reconnection the reader repeats the last record
            records = [record for record in found if record.offset >= recent_events.next_id]
            if records:
                self._feed.receive((record.offset, record.value) for record in records)
                continue
            if recent_events.next_id < end:
                raise KafkaUnavailable(f"no record for {POLL_S:g} s, although the log has more")
            _, end = await self._bounds(cluster)
            if end < recent_events.next_id:
                raise KafkaUnavailable("the topic was recreated")

    async def _bounds(self, cluster: Cluster) -> tuple[int, int]:
        log = self._topic, 0
        first = await list_offsets(cluster, [log], EARLIEST)
        end = await list_offsets(cluster, [log], LATEST)
        return first[log], end[log]
