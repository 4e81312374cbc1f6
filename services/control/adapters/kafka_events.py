"""Reads the topic `baton.events` into the feed: from its beginning, without end, through any outage.

aiokafka's consumer may stall forever after a broker has returned. So whenever no record arrives for a while,
the reader asks for the log's bounds; if its position is behind or beyond them, it starts a new consumer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

from aiokafka import AIOKafkaConsumer, TopicPartition

from services.control.live.feed import EventFeed
from shared.backoff import Backoff
from shared.errors import BatonError, KafkaUnavailable
from shared.kafka.bounds import LogBounds
from shared.kafka.clients import CALL_TIMEOUT_S, discard_consumer, started_consumer
from shared.kafka.topics import ensure_topics, events_topic
from shared.model.names import Names

POLL_S = 2.0
MAX_RECORDS = 2_000

logger = logging.getLogger(__name__)


class KafkaEvents:
    """Fills `feed` while `run()` runs; creates the topic if it is missing."""

    def __init__(self, kafka: str, names: Names, feed: EventFeed, *, replication: int) -> None:
        self._kafka = kafka
        self._names = names
        self._feed = feed
        self._replication = replication
        self._partition = TopicPartition(names.events, 0)
        # LogBounds has its own consumer: on the reading one, the request would wait behind the long poll
        self._bounds = LogBounds(kafka)
        self._has_begun = False

    def __repr__(self) -> str:
        return f"<KafkaEvents of {self._partition.topic} at {self._kafka}>"

    async def run(self) -> None:
        """Reads until cancelled."""
        try:
            await self._read_until_cancelled()
        finally:
            await self._bounds.close()

    async def _read_until_cancelled(self) -> None:
        backoff = Backoff(first_s=0.2, cap_s=3.0)
        logged = ""
        while True:
            try:
                await ensure_topics(self._kafka, [events_topic(self._names)], self._replication)
                async with self._started() as consumer:
                    backoff.reset()
                    logged = ""
                    await self._read(consumer)
            # aiokafka raises more than it documents, and control must not stop for the sake of its history
            except Exception as error:
                why = error.detail if isinstance(error, BatonError) else repr(error)
                self._feed.mark_failed(why)
                if why != logged:
                    logger.warning("events unread", extra={"why": why})
                logged = why
            await asyncio.sleep(backoff.next_s())

    @contextlib.asynccontextmanager
    async def _started(self) -> AsyncIterator[AIOKafkaConsumer]:
        consumer = await started_consumer(self._kafka, auto_offset_reset="none")
        try:
            consumer.assign([self._partition])
            consumer.seek(self._partition, 0)  # without a position, the consumer would look one up in Kafka
            consumer.pause(self._partition)
            yield consumer
        finally:
            await discard_consumer(consumer)

    async def _read(self, consumer: AIOKafkaConsumer) -> None:
        """Receives records from where the feed stands. Raises KafkaUnavailable when the consumer stalls."""
        recent_events = self._feed.recent_events
        first, end = (await self._bounds.bounds([self._partition]))[self._partition]
        # outside of the log: the topic was recreated, or retention has passed us
        if not self._has_begun or not first <= recent_events.next_id <= end:
            self._feed.begin(first)
            self._has_begun = True
        consumer.seek(self._partition, recent_events.next_id)
        consumer.resume(self._partition)
        while True:
            if recent_events.next_id >= end:
                self._feed.mark_current()
            async with asyncio.timeout(POLL_S + CALL_TIMEOUT_S):
                found = await consumer.getmany(
                    self._partition, timeout_ms=int(POLL_S * 1000), max_records=MAX_RECORDS
                )
            records = found.get(self._partition, [])
            if records:
                self._feed.receive((record.offset, record.value) for record in records)
                continue
            # aiokafka has stalled: only a new consumer helps
            if recent_events.next_id < end:
                raise KafkaUnavailable(f"no record for {POLL_S:g} s, although the log has more")
            first, end = (await self._bounds.bounds([self._partition]))[self._partition]
            if end < recent_events.next_id:
                raise KafkaUnavailable("the topic was recreated")
