"""A lane sends the fragments of its streams in the log's order, one request in flight at a time.

Every stream belongs to one lane, so its order survives any network fault; lanes run in parallel. A lane's
queue is bounded: `offer` waits while it is full. A batch is whatever is queued when the lane is idle, so a
slow log is sent line by line and a fast one in large requests.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass

from cli.http.receipts import Receipt, RequestTooLarge
from cli.importing.parsing.fragments import MAX_BATCH_BYTES, Outgoing
from cli.importing.tally import Tally
from shared.errors import BatonError

MAX_BATCH_FRAGMENTS = 2500
"""The producer's limit of one request (docs/protocol.md), beside that in bytes."""
PATIENCE_S = 240.0
"""How long a request is retried: less than the 5 minutes (`repeat_ms`) for which consumers remember ids."""


Post = Callable[[bytes], Awaitable[Receipt]]
"""Posts a request body and returns the outcome of every fragment in it.

Raises RequestTooLarge, or another BatonError to stop the import. `BatonClient.post_fragments` is one.
"""

Settled = Callable[[Sequence[Outgoing], Collection[int]], None]
"""Called after a batch was answered and counted, with the indexes of its rejected fragments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """The size of the largest request."""

    fragments: int = 1000
    bytes: int = MAX_BATCH_BYTES


class Lane:
    """One lane; `run` sends until `close` was called and the queue is empty."""

    def __init__(
        self, post: Post, tally: Tally, limits: BatchLimits, on_settled: Settled = lambda _, __: None
    ) -> None:
        self._post = post
        self._tally = tally
        self._limits = limits
        self._on_settled = on_settled
        self._queue: deque[Outgoing] = deque()
        self._queued_bytes = 0
        self._closed = False
        self._changed = asyncio.Event()
        self._room = asyncio.Event()

    def __repr__(self) -> str:
        return f"Lane(queued={len(self._queue)}, closed={self._closed})"

    async def offer(self, fragment: Outgoing) -> None:
        """Appends a fragment to the queue; waits while the queue holds two full requests."""
        # one request to send next, and one that fills up while the previous is in flight
        while len(self._queue) >= 2 * self._limits.fragments or self._queued_bytes >= 2 * self._limits.bytes:
            self._room.clear()
            await self._room.wait()
        self._queue.append(fragment)
        self._queued_bytes += len(fragment.value) + 1
        self._changed.set()

    def close(self) -> None:
        """Ends `run` once the queue is empty; nothing may be offered after this."""
        self._closed = True
        self._changed.set()

    async def run(self) -> None:
        """Sends what is offered, in order. Raises what `post` raises, and leaves the rest unsent."""
        while True:
            if self._queue:
                batch = self._next_batch()
                # before the request: if it fails, sent > accepted shows that the outcome is unknown
                self._tally.sent += len(batch)
                await self._send(batch)
            # only once the queue is empty
            elif self._closed:
                return
            else:
                self._changed.clear()
                await self._changed.wait()

    def _next_batch(self) -> list[Outgoing]:
        """Removes from the queue what fits into one request, at least one fragment."""
        batch: list[Outgoing] = []
        size = 0
        while self._queue and len(batch) < self._limits.fragments:
            size += len(self._queue[0].value) + 1
            if batch and size > self._limits.bytes:
                break
            batch.append(self._queue.popleft())
            self._queued_bytes -= len(batch[-1].value) + 1
        self._room.set()
        return batch

    async def _send(self, batch: Sequence[Outgoing]) -> None:
        """Sends a batch; splits it in halves if it is too large for the producer."""
        try:
            receipt = await self._post(b"\n".join(f.value for f in batch))
        except RequestTooLarge as error:
            if len(batch) == 1:
                self._tally.count_rejected(batch[0].line, "size", error.detail)
                self._on_settled(batch, [0])
                return
            # one half after the other, never in parallel: the order within a stream must survive
            half = len(batch) // 2
            await self._send(batch[:half])
            await self._send(batch[half:])
            return
        self._count(batch, receipt)

    def _count(self, batch: Sequence[Outgoing], receipt: Receipt) -> None:
        rejected = {item.index: item for item in receipt.rejected if 0 <= item.index < len(batch)}
        # a proxy's friendly 200 must not pass for an acknowledgement
        if len(rejected) != len(receipt.rejected) or receipt.accepted + len(rejected) != len(batch):
            raise BatonError(
                f"the producer accounts for {receipt.accepted} accepted and {len(receipt.rejected)} rejected"
                f" of {len(batch)} fragments"
            )
        for index, fragment in enumerate(batch):
            if item := rejected.get(index):
                self._tally.count_rejected(fragment.line, item.reason, item.detail)
            else:
                self._tally.count_accepted(len(fragment.value), fragment.time_ms)
        self._on_settled(batch, rejected)
