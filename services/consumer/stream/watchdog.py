"""Finds readers that hang: there are records to read, the stream runs, and the position does not move.

A reader that stalls raises no error; only the missing progress shows it. So the watchdog asks for the ends of
the streams over another connection, and compares them with the positions. A stream whose reader hangs is
opened anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from services.consumer.ports import StreamLog
from services.consumer.stream.worker import StreamWorker
from shared.errors import Unavailable

logger = logging.getLogger(__name__)

WATCH_EVERY_S = 5.0
STALLED_S = 15.0
"""A reader with records to read that makes no progress for this long hangs."""


class ReaderWatchdog:
    """Watches the readers of `workers()`."""

    def __init__(
        self,
        stream_log: StreamLog,
        workers: Callable[[], Sequence[StreamWorker]],
        now_s: Callable[[], float],
    ) -> None:
        self._log = stream_log
        self._workers = workers
        self._now_s = now_s
        self._stuck: dict[int, tuple[int, float]] = {}
        """Stream → position, and since when it is that."""

    async def run(self) -> None:
        """Steps every few seconds, until it is cancelled."""
        while True:
            await asyncio.sleep(WATCH_EVERY_S)
            await self.step()

    async def step(self) -> None:
        """Asks for the ends once, and checks every worker."""
        workers = self._workers()
        if not workers:
            return
        try:
            ends = await self._log.ends([worker.stream for worker in workers])
        except Unavailable as error:
            logger.warning("ends unknown", extra={"why": error.detail})
            return
        now_s = self._now_s()
        for worker in workers:
            self._judge(worker, ends.get(worker.stream, -1), now_s)

    def _judge(self, worker: StreamWorker, end: int, now_s: float) -> None:
        position, since_s = self._stuck.get(worker.stream, (-1, now_s))
        if worker.position != position or end <= position or worker.is_waiting:
            self._stuck[worker.stream] = (worker.position, now_s)
        elif now_s - since_s > STALLED_S:
            logger.warning("reader hangs", extra={"stream": worker.stream, "end": end})
            worker.reopen()
            self._stuck[worker.stream] = (position, now_s)
