"""A lane: sends its streams' fragments in the file's order, one request in flight at a time.

A stream belongs to one lane, so its order holds whatever the network does; lanes run side by side. What waits
in a lane is bounded: `offer` waits while it is full. A batch is whatever waits when the lane is free, so a
slow log is sent at once and a fast one in large requests.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from cli.importing.fragments import Outgoing
from cli.importing.tally import Tally
from cli.receipts import Receipt, RequestTooLarge
from shared.errors import BatonError

MAX_BATCH_FRAGMENTS = 2500
MAX_BATCH_BYTES = 1_000_000
"""The producer's limits of one request (design section 3), line ends included."""


class FragmentSink(Protocol):
    """Where batches go: `BatonClient`, or a twin in tests."""

    async def post_fragments(self, body: bytes) -> Receipt:
        """What became of the NDJSON's fragments. Raises RequestTooLarge, or BatonError to give up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """The largest request."""

    fragments: int = 1000
    bytes: int = MAX_BATCH_BYTES


class Lane:
    """One lane; `run` sends until `close` was called and nothing waits any more."""

    def __init__(
        self, sink: FragmentSink, tally: Tally, limits: BatchLimits, on_progress: Callable[[], None]
    ) -> None:
        self._sink = sink
        self._tally = tally
        self._limits = limits
        self._on_progress = on_progress
        self._waiting: deque[Outgoing] = deque()
        self._waiting_bytes = 0
        self._closed = False
        self._changed = asyncio.Event()
        self._room = asyncio.Event()

    def __repr__(self) -> str:
        return f"Lane(waiting={len(self._waiting)}, closed={self._closed})"

    async def offer(self, fragment: Outgoing) -> None:
        """Puts a fragment at the lane's end, waiting while two whole requests wait already."""
        while (
            len(self._waiting) >= 2 * self._limits.fragments or self._waiting_bytes >= 2 * self._limits.bytes
        ):
            self._room.clear()
            await self._room.wait()
        self._waiting.append(fragment)
        self._waiting_bytes += len(fragment.value) + 1
        self._changed.set()

    def close(self) -> None:
        """Nothing more will be offered."""
        self._closed = True
        self._changed.set()

    async def run(self) -> None:
        """Sends what is offered, in order. Raises what the sink raises; the rest then stays unsent."""
        while True:
            if self._waiting:
                batch = self._take()
                self._tally.sent += len(batch)
                await self._send(batch)
                self._on_progress()
            elif self._closed:
                return
            else:
                self._changed.clear()
                await self._changed.wait()

    def _take(self) -> list[Outgoing]:
        """The longest first part of what waits that fits a request; at least one fragment."""
        batch: list[Outgoing] = []
        size = 0
        while self._waiting and len(batch) < self._limits.fragments:
            size += len(self._waiting[0].value) + 1
            if batch and size > self._limits.bytes:
                break
            batch.append(self._waiting.popleft())
            self._waiting_bytes -= len(batch[-1].value) + 1
        self._room.set()
        return batch

    async def _send(self, batch: Sequence[Outgoing]) -> None:
        """Sends a batch; one that is too large for the producer in halves, one after the other."""
        try:
            receipt = await self._sink.post_fragments(b"\n".join(f.value for f in batch))
        except RequestTooLarge as error:
            if len(batch) == 1:
                self._tally.count_rejected(batch[0].line, "size", error.detail)
                return
            half = len(batch) // 2
            await self._send(batch[:half])
            await self._send(batch[half:])
            return
        self._count(batch, receipt)

    def _count(self, batch: Sequence[Outgoing], receipt: Receipt) -> None:
        refused = {item.index: item for item in receipt.rejected if 0 <= item.index < len(batch)}
        if len(refused) != len(receipt.rejected) or receipt.accepted + len(refused) != len(batch):
            raise BatonError(
                f"the producer accounts for {receipt.accepted} accepted and {len(receipt.rejected)} rejected"
                f" of {len(batch)} fragments"
            )
        for index, fragment in enumerate(batch):
            if item := refused.get(index):
                self._tally.count_rejected(fragment.line, item.reason, item.detail)
            else:
                self._tally.count_accepted(len(fragment.value), fragment.time_ms)
