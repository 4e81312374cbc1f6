"""Takes a sample of all queues every 15 s, keeps the last hour, and hands each sample on to the topic.

A slot in which no worker answered has no sample, like those of `history.py`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from services.control.core.history.hour import STEP_MS
from services.control.core.history.queue_history import (
    QueueHistory,
    QueueRing,
    encode_queues_sample,
    parse_queues_sample,
    queues_sample,
)
from services.control.live.queues.queues import Queues
from shared.errors import InvalidInput


class QueueHours:
    """`run()` takes samples until cancelled; `of` answers from memory.

    `write` gets each sample as the topic stores it; `writer` names this control in it.
    """

    def __init__(
        self,
        queues: Queues,
        write: Callable[[bytes], None],
        *,
        writer: str,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._queues = queues
        self._write = write
        self._writer = writer
        self._now_ms = now_ms
        self._ring = QueueRing()

    def __repr__(self) -> str:
        return f"<QueueHours by {self._writer}: {self._ring!r}>"

    async def run(self) -> None:
        """Takes a sample at the begin of each slot until cancelled."""
        while True:
            await asyncio.sleep((STEP_MS - self._now_ms() % STEP_MS) / 1000)
            self.step()

    def step(self) -> None:
        """Takes a sample, unless there are no queues or no worker answers."""
        now_ms = self._now_ms()
        sample = queues_sample(self._queues.known(), at=now_ms, writer=self._writer)
        if sample.queues:
            self._ring.add(sample, now_ms)
            self._write(encode_queues_sample(sample))

    def restore(self, raw: bytes | None) -> bool:
        """Whether it was a sample of queues as the topic stores it; then it is taken in."""
        try:
            sample = parse_queues_sample(raw or b"")
        except InvalidInput:
            return False
        self._ring.add(sample, self._now_ms())
        return True

    def of(self, queue: str) -> QueueHistory:
        """The last hour of a queue. Raises UnknownQueue, QueuesUnavailable."""
        self._queues.row(queue)
        return self._ring.of(queue, self._now_ms())
