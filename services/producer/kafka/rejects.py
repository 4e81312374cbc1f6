"""Writes rejected fragments to the topic `fragments.rejected`, each at most once, without delaying a request.

`put` only appends to a queue that is bounded in bytes; `run` sends from it, a little at a time. Rejects wait
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

from services.producer.core.ingest import Rejected
from services.producer.core.reject_shares import STORED_OVERHEAD_BYTES, RejectShares
from services.producer.ports import RejectCounts
from shared.kafka.admin.topics import REJECTED_RETENTION_MS
from shared.kafka.connect.cluster import Cluster
from shared.kafka.send.outcome import FLUSH_TIMEOUT_S, Loss
from shared.kafka.send.sender import Sender
from shared.model.names import Names
from shared.model.rejects import headers_of, kept_part

MAX_WAITING_BYTES = 8 * 1024 * 1024
RECORD_OVERHEAD_BYTES = 1_000
"""The most memory that a waiting reject uses besides its bytes: its headers and Python objects."""
BATCH_BYTES = 128 * 1024
"""Small, because a batch is built without a pause: 1,700 rejects without content take 5 ms."""
ACK_TIMEOUT_S = 60.0
"""Long, because what has been sent once is tried again only until then, and dropped after it."""
Waiting = tuple[Rejected, bytes, int]
"""A reject, the bytes to keep, and their original number."""

logger = logging.getLogger(__name__)


class KafkaRejects:
    """The Rejects on Kafka; it sends only while `run()` is running."""

    def __init__(
        self,
        cluster: Cluster,
        names: Names,
        *,
        max_waiting_bytes: int = MAX_WAITING_BYTES,
        share_bytes: int = 8 * 1024 * 1024,
        writers: Callable[[], int] = lambda: 1,
        ack_timeout_s: float = ACK_TIMEOUT_S,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._place = names.rejected, 0
        self._max_waiting_bytes = max_waiting_bytes
        # what `_send_some` takes fits into one batch, so it keeps its order if it has to wait
        self._sender = Sender(cluster, deliver_s=ack_timeout_s, max_batch_bytes=2 * BATCH_BYTES)
        self._now_s = now_s
        self._shares = RejectShares(
            share_bytes=share_bytes, refill_s=REJECTED_RETENTION_MS / 1000, writers=writers
        )
        # headers are built later: they cost more than the answer
        self._waiting: deque[Waiting] = deque()
        self._waiting_bytes = 0
        """Of all that is neither stored nor dropped."""
        self._shares_left = 0
        """Of what the sender has, how many outcomes are still to come."""
        self._failure = ""
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self.counts = RejectCounts()

    def __repr__(self) -> str:
        return f"<KafkaRejects to {self._place}: {len(self._waiting)} waiting, {self.counts}>"

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
        """Sends what `put` queues until cancelled; what is not stored then is dropped."""
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                if self._waiting and not self._shares_left:
                    self._send_some()
        finally:
            await self._sender.close()
            self.counts.dropped += len(self._waiting)

    async def flush(self) -> None:
        """Waits until all is stored, at most 2 s; call it before `run` is cancelled."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_TIMEOUT_S):
                await self._idle.wait()
        if not self._idle.is_set():
            logger.warning("rejects lost", extra={"waiting": len(self._waiting)})

    def stored(self, indexes: Sequence[Waiting], first_offset: int) -> None:
        """Counts rejects that the sender has stored (see `Waiter`)."""
        self.counts.stored += len(indexes)
        self._failure = ""
        self._settle(indexes)

    def lost(self, indexes: Sequence[Waiting], loss: Loss) -> None:
        """Drops rejects that may be stored, or never will be; the others wait on (see `Waiter`)."""
        if loss.is_unknown or loss.kind == "rejected":
            self.counts.dropped += len(indexes)
            done = indexes
        else:
            self._waiting.extendleft(reversed(indexes))
            done = ()
        if loss.reason != self._failure:
            why = f"{loss.reason}: {loss.cause}" if loss.cause else loss.reason
            logger.warning("rejects waiting for kafka", extra={"why": why})
        self._failure = loss.reason
        self._settle(done)

    def _settle(self, done: Sequence[Waiting]) -> None:
        self._waiting_bytes -= sum(_weight(kept) for _, kept, _ in done)
        self._shares_left -= 1
        if self._waiting:
            self._wake.set()
        elif not self._shares_left:
            self._idle.set()

    def _send_some(self) -> None:
        """Passes about as much as one batch to the sender."""
        items, size = list[Waiting](), 0
        while self._waiting and size < BATCH_BYTES:
            items.append(self._waiting.popleft())
            size += _weight(items[-1][1])
        records = (
            (None, kept, headers_of(item.reason, item.detail, posted, item.index, is_cut=len(kept) < posted))
            for item, kept, posted in items
        )
        self._shares_left = self._sender.add(self._place, records, items, self)


def _weight(kept: bytes) -> int:
    return len(kept) + RECORD_OVERHEAD_BYTES
