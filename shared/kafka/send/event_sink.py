"""Writes events to the topic `baton.events`: in order, and without ever blocking who reports them.

`emit` only puts the event into a bounded queue; `run` sends from there, one batch at a time, so that a batch
that is sent again keeps its order. While Kafka is away, events wait; beyond `capacity` the oldest are dropped
and counted. A batch with an unknown outcome is sent again, so a reader may see an event twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque

from shared.backoff import Backoff
from shared.errors import InvalidInput, KafkaUnavailable
from shared.kafka.connect.cluster import Cluster
from shared.kafka.record import Record
from shared.kafka.send.outcome import FLUSH_TIMEOUT_S, Delivery
from shared.kafka.send.sender import Sender
from shared.model.events import Event, encode_event
from shared.model.names import Names

CAPACITY = 10_000
"""Events that may wait: a few MB, and hours of a quiet group."""
BATCH_BYTES = 256 * 1024
RECORD_OVERHEAD_BYTES = 30
"""At least what a record of an event has besides its value."""
ACK_TIMEOUT_S = 10.0

logger = logging.getLogger(__name__)


class KafkaEventSink:
    """Sends events to Kafka while `run()` runs; call `close()` after it.

    `dropped` counts the events that will never be written.
    """

    def __init__(self, cluster: Cluster, names: Names, *, capacity: int = CAPACITY) -> None:
        self._place = names.events, 0
        self._capacity = capacity
        # what `_take` takes fits into one batch, so its events are written together or not at all
        self._sender = Sender(cluster, deliver_s=ACK_TIMEOUT_S, max_batch_bytes=2 * BATCH_BYTES)
        self._waiting: deque[bytes] = deque()
        self._batch: list[bytes] = []
        self._sending: Delivery | None = None
        self._wake = asyncio.Event()
        self._turn = asyncio.Lock()
        self.dropped = 0

    def __repr__(self) -> str:
        return f"<KafkaEventSink to {self._place}: {self.waiting} waiting, {self.dropped} dropped>"

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
        backoff, reported = Backoff(first_s=0.1, cap_s=2.0), ""
        while True:
            await self._wake.wait()
            try:
                await self.step()
            except KafkaUnavailable as error:
                if error.reason != reported:
                    logger.warning("events wait", extra={"why": error.detail, "waiting": self.waiting})
                reported = error.reason
                await asyncio.sleep(backoff.next_s())
            else:
                reported = ""
                backoff.reset()

    async def step(self) -> None:
        """Sends all that waits. Raises KafkaUnavailable; then it still waits, in the same order."""
        async with self._turn:
            while self.waiting:
                await self._send_batch()
            self._wake.clear()

    async def close(self) -> None:
        """Sends what still waits, for at most 2 s, and closes the sender; never raises."""
        with contextlib.suppress(KafkaUnavailable, TimeoutError):
            async with asyncio.timeout(FLUSH_TIMEOUT_S):
                await self.step()
        if self.waiting:
            logger.warning("events lost", extra={"waiting": self.waiting})
        await self._sender.close()

    async def _send_batch(self) -> None:
        if self._sending is None:
            self._take()
            self._sending = Delivery()
            records: list[Record] = [(None, event, []) for event in self._batch]
            self._sending.expect(self._sender.add(self._place, records, range(len(records)), self._sending))
        # where `run` was cancelled here, `close` waits for it: so the future must survive our cancellation
        await asyncio.wait({self._sending.done})
        loss, self._sending = self._sending.loss, None
        if loss is not None:
            self._put_back()
            raise KafkaUnavailable(loss.reason, cause=loss.cause)
        self._batch.clear()

    def _take(self) -> None:
        size = 0
        while self._waiting and size < BATCH_BYTES:
            self._batch.append(self._waiting.popleft())
            size += len(self._batch[-1]) + RECORD_OVERHEAD_BYTES

    def _put_back(self) -> None:
        self._waiting.extendleft(reversed(self._batch))
        self._batch.clear()
        self._keep_capacity()

    def _keep_capacity(self) -> None:
        while self._waiting and self.waiting > self._capacity:
            self._waiting.popleft()
            self.dropped += 1
