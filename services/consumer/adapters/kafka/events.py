"""Writes a member's events to the topic `baton.events`: in order, and without ever blocking the member.

`emit` only puts the event into a bounded queue; `run` sends from there, one batch at a time, so that a batch
that is sent again keeps its order. While Kafka is away, events wait; beyond `capacity` the oldest are dropped
and counted. A batch with an unknown outcome is sent again by a new producer, so a reader may see an event
twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from typing import Any

from aiokafka import AIOKafkaProducer

from shared.errors import InvalidInput, KafkaUnavailable
from shared.kafka.clients import discard_producer
from shared.kafka.outbox import FLUSH_TIMEOUT_S, outbox_producer, run_outbox, wait_for_ack
from shared.model.events import Event, encode_event
from shared.model.names import Names

CAPACITY = 10_000
"""Events that may wait: a few MB, and hours of a quiet group."""
BATCH_BYTES = 256 * 1024
ACK_TIMEOUT_S = 10.0

logger = logging.getLogger(__name__)


class KafkaEventSink:
    """Sends events to Kafka while `run()` runs; call `close()` after it.

    `dropped` counts the events that will never be written.
    """

    def __init__(self, kafka: str, names: Names, *, capacity: int = CAPACITY) -> None:
        self._kafka = kafka
        self._topic = names.events
        self._capacity = capacity
        self._waiting: deque[bytes] = deque()
        self._batch: list[bytes] = []
        self._sending: asyncio.Future[Any] | None = None
        self._producer: AIOKafkaProducer | None = None
        self._wake = asyncio.Event()
        self._turn = asyncio.Lock()
        self.dropped = 0

    def __repr__(self) -> str:
        return f"<KafkaEventSink to {self._kafka}: {self.waiting} waiting, {self.dropped} dropped>"

    @property
    def waiting(self) -> int:
        """How many events are not known to be written yet."""
        return len(self._batch) + len(self._waiting)

    def emit(self, event: Event) -> None:
        """Queues the event; returns at once and never raises."""
        try:
            self._waiting.append(encode_event(event))
        except InvalidInput as error:
            self.dropped += 1
            logger.warning("event unwritable", extra={"kind": event.kind, "why": error.detail})
            return
        self._keep_capacity()
        self._wake.set()

    async def run(self) -> None:
        """Sends events until it is cancelled; leaves what still waits to `close`."""
        await run_outbox(self._wake, self.step, self._report_waiting)

    async def step(self) -> None:
        """Sends all that waits. Raises KafkaUnavailable; then it still waits, in the same order."""
        async with self._turn:
            try:
                while self.waiting:
                    await self._send_batch()
            # aiokafka fails in more ways than it documents, and no member may stop because of its events
            except Exception as error:
                await self._discard()
                raise KafkaUnavailable(f"events cannot be written: {error!r}") from None
            self._wake.clear()

    async def close(self) -> None:
        """Sends what still waits, for at most 2 s, and closes the producer; never raises."""
        with contextlib.suppress(KafkaUnavailable, TimeoutError):
            async with asyncio.timeout(FLUSH_TIMEOUT_S):
                await self.step()
        if self.waiting:
            logger.warning("events lost", extra={"waiting": self.waiting})
        await self._discard()

    async def _send_batch(self) -> None:
        if self._sending is None:
            self._put_back()
            async with asyncio.timeout(ACK_TIMEOUT_S):
                self._sending = await self._begin(await self._started())
        # where `run` was cancelled here, `close` waits for it
        await wait_for_ack(self._sending, ACK_TIMEOUT_S)
        self._sending = None
        self._batch.clear()

    async def _begin(self, producer: AIOKafkaProducer) -> asyncio.Future[Any]:
        builder = producer.create_batch()
        while self._waiting and builder.append(key=None, value=self._waiting[0], timestamp=None) is not None:
            self._batch.append(self._waiting.popleft())
        # returns at once: the topic is known, and no other batch is under way
        sending: asyncio.Future[Any] = await producer.send_batch(builder, self._topic, partition=0)
        return sending

    async def _started(self) -> AIOKafkaProducer:
        if self._producer is None:
            self._producer = await outbox_producer(self._kafka, self._topic, batch_bytes=BATCH_BYTES)
        return self._producer

    async def _discard(self) -> None:
        producer, self._producer, sending, self._sending = self._producer, None, self._sending, None
        self._put_back()
        if producer is not None:
            await discard_producer(producer)
        if sending is not None and sending.done() and not sending.cancelled():
            sending.exception()  # known already, or of no interest

    def _report_waiting(self, why: str) -> None:
        logger.warning("events wait", extra={"why": why, "waiting": self.waiting})

    def _put_back(self) -> None:
        self._waiting.extendleft(reversed(self._batch))
        self._batch.clear()
        self._keep_capacity()

    def _keep_capacity(self) -> None:
        while self._waiting and self.waiting > self._capacity:
            self._waiting.popleft()
            self.dropped += 1
