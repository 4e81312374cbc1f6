"""Writes rejected fragments to the topic `fragments.rejected`, each at most once, without delaying a request.

`put` only appends to a queue that is bounded in bytes; `run` sends from it, one batch at a time. Rejects wait
while Kafka is unavailable, and are dropped when the queue is full or their share is used up. A batch with
an unknown outcome counts as dropped too: if it were written twice, a replay would send its fragments twice,
under two ids.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence

from aiokafka import AIOKafkaProducer
from aiokafka.producer.message_accumulator import BatchBuilder

from services.producer.core.ingest import Rejected
from services.producer.core.reject_shares import STORED_OVERHEAD_BYTES, RejectShares
from services.producer.ports import RejectCounts
from shared.errors import KafkaUnavailable
from shared.kafka.clients import CALL_TIMEOUT_S, discard_producer
from shared.kafka.outbox import FLUSH_TIMEOUT_S, outbox_producer, run_outbox, wait_for_ack
from shared.kafka.topics import REJECTED_RETENTION_MS
from shared.model.names import Names
from shared.model.rejects import headers_of, kept_part

MAX_WAITING_BYTES = 8 * 1024 * 1024
RECORD_OVERHEAD_BYTES = 1_000
"""The most memory that a waiting reject uses besides its bytes: its headers and Python objects."""
BATCH_BYTES = 128 * 1024
"""Small, because a batch is built without a pause: 1,700 rejects without content take 5 ms."""
ACK_TIMEOUT_S = 60.0
"""Long, because aiokafka's own retries write nothing twice, and giving up loses the batch."""

logger = logging.getLogger(__name__)


class KafkaRejects:
    """The Rejects on Kafka; it sends only while `run()` is running."""

    def __init__(
        self,
        kafka: str,
        names: Names,
        *,
        max_waiting_bytes: int = MAX_WAITING_BYTES,
        share_bytes: int = 8 * 1024 * 1024,
        writers: Callable[[], int] = lambda: 1,
        ack_timeout_s: float = ACK_TIMEOUT_S,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kafka = kafka
        self._topic = names.rejected
        self._max_waiting_bytes = max_waiting_bytes
        self._ack_timeout_s = ack_timeout_s
        self._now_s = now_s
        self._shares = RejectShares(
            share_bytes=share_bytes, refill_s=REJECTED_RETENTION_MS / 1000, writers=writers
        )
        # reject, bytes to keep, original size; headers are built later: they cost more than the answer
        self._waiting: deque[tuple[Rejected, bytes, int]] = deque()
        self._waiting_bytes = 0
        self._producer: AIOKafkaProducer | None = None
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self.counts = RejectCounts()

    def __repr__(self) -> str:
        return f"<KafkaRejects to {self._kafka}: {len(self._waiting)} waiting, {self.counts}>"

    def put(self, rejected: Sequence[Rejected], posted: Sequence[bytes], writer: str = "") -> None:
        """See Rejects."""
        for item, value in zip(rejected, posted, strict=True):
            kept = kept_part(value)
            weight = _weight(kept)
            if self._waiting_bytes + weight > self._max_waiting_bytes:
                self.counts.dropped += 1
                continue
            size = len(kept) + STORED_OVERHEAD_BYTES
            if not self._shares.take(item.reason, size, self._now_s(), writer):
                self.counts.over_share[item.reason] += 1
                continue
            self.counts.cut += len(kept) < len(value)
            self._waiting.append((item, kept, len(value)))
            self._waiting_bytes += weight
        if self._waiting:
            self._idle.clear()
            self._wake.set()

    async def run(self) -> None:
        """Sends what `put` queues until cancelled; what still waits then is dropped."""
        try:
            await run_outbox(self._wake, self.step, _log_waiting)
        finally:
            self.counts.dropped += len(self._waiting)
            await self._discard()

    async def step(self) -> None:
        """Sends everything that waits. Raises KafkaUnavailable; batches not yet started then keep waiting."""
        try:
            while self._waiting:
                await self._send_batch(await self._started())
        # aiokafka raises more than it documents, and rejects must never stop a producer
        except Exception as error:
            await self._discard()
            raise KafkaUnavailable(f"rejects cannot be written: {error!r}") from None
        self._wake.clear()
        self._idle.set()

    async def flush(self) -> None:
        """Waits until the queue is empty, at most 2 s; call it before `run` is cancelled."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_TIMEOUT_S):
                await self._idle.wait()
        if self._waiting:
            logger.warning("rejects lost", extra={"waiting": len(self._waiting)})

    async def _send_batch(self, producer: AIOKafkaProducer) -> None:
        builder, count = producer.create_batch(), 0
        while self._waiting:
            item, value, size = self._waiting[0]
            headers = headers_of(item.reason, item.detail, size, item.index, is_cut=len(value) < size)
            if builder.append(key=None, value=value, timestamp=None, headers=headers) is None:
                break
            self._waiting.popleft()
            self._waiting_bytes -= _weight(value)
            count += 1
        try:
            await self._acknowledged(producer, builder)
        except BaseException:
            self.counts.dropped += count
            raise
        self.counts.stored += count

    async def _acknowledged(self, producer: AIOKafkaProducer, builder: BatchBuilder) -> None:
        async with asyncio.timeout(CALL_TIMEOUT_S):
            # returns at once: the topic is known, and no other batch is in flight
            sending = await producer.send_batch(builder, self._topic, partition=0)
        # retrieve the exception even if we stopped waiting, or asyncio would log it
        sending.add_done_callback(lambda done: done.cancelled() or done.exception())
        await wait_for_ack(sending, self._ack_timeout_s)

    async def _started(self) -> AIOKafkaProducer:
        if self._producer is None:
            self._producer = await outbox_producer(self._kafka, self._topic, batch_bytes=BATCH_BYTES)
        return self._producer

    async def _discard(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await discard_producer(producer)


def _weight(kept: bytes) -> int:
    return len(kept) + RECORD_OVERHEAD_BYTES


def _log_waiting(why: str) -> None:
    logger.warning("rejects waiting for kafka", extra={"why": why})
