"""Connects the clients of streams that are about to arrive, so that a handover need not wait for them.

When a copy is promised, a reader and a sink connect. When the delta arrives, the reader seeks to where the
donor stopped and fetches while the stream is still being claimed. That is safe: records have no effect until
they are folded, and a sink fences nobody until it is opened. Clients that are not used are closed. Used by
`member/workers.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from services.consumer.ports import FragmentReader, SessionSink, StreamLog
from shared.errors import BatonError
from shared.together import both

KEEP_S = 30.0
"""As long as the hint store keeps the hint that the clients were connected for."""


@dataclass(slots=True, kw_only=True)
class WarmClients:
    """A connected reader and sink.

    `reads_from`: the offset from which the reader already reads, -1 if it does not read yet. `log_start`:
    where the log began when it connected; a reader that reads cannot be asked again, because its connection
    is busy with a fetch.
    """

    reader: FragmentReader
    sink: SessionSink
    reads_from: int = -1
    log_start: int = 0


@dataclass(slots=True, kw_only=True)
class _Pending:
    warm: WarmClients
    task: asyncio.Task[None]
    since_s: float


class WarmClientPool:
    """Holds at most one pair of clients per stream."""

    def __init__(self, log: StreamLog, now_s: Callable[[], float]) -> None:
        self._log = log
        self._now_s = now_s
        self._pending: dict[int, _Pending] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<WarmClientPool {sorted(self._pending)}>"

    def prepare(self, stream: int) -> None:
        """Starts connecting a reader and a sink of the stream."""
        self.forget_old()
        if stream not in self._pending:
            warm = WarmClients(reader=self._log.reader(stream), sink=self._log.sink(stream))
            task = asyncio.create_task(_connect(warm), name=f"connect stream {stream}")
            self._pending[stream] = _Pending(warm=warm, task=task, since_s=self._now_s())

    def seek_ahead(self, stream: int, offset: int) -> None:
        """Starts reading the stream at the offset, if its clients are connected by now."""
        pending = self._pending.get(stream)
        # once only: a delta that comes twice must not move a reader that already reads
        if pending is not None and _is_ready(pending.task) and pending.warm.reads_from < 0:
            pending.warm.reads_from = offset
            pending.task = asyncio.create_task(
                pending.warm.reader.open(offset), name=f"seek ahead in stream {stream}"
            )

    def take(self, stream: int) -> WarmClients | None:
        """The stream's clients, if they are ready; from here on the caller closes them."""
        pending = self._pending.pop(stream, None)
        if pending is None:
            return None
        if _is_ready(pending.task):
            return pending.warm
        # not connected in time, or failed: the worker connects its own and handles the errors
        self._discard(pending)
        return None

    def forget_old(self) -> None:
        """Closes clients that nobody took in time."""
        oldest_s = self._now_s() - KEEP_S
        for stream in [n for n, pending in self._pending.items() if pending.since_s < oldest_s]:
            self._discard(self._pending.pop(stream))

    async def close(self) -> None:
        """Closes all of them; never raises."""
        for pending in self._pending.values():
            self._discard(pending)
        self._pending.clear()
        await asyncio.gather(*self._closing, return_exceptions=True)

    def _discard(self, pending: _Pending) -> None:
        task = asyncio.create_task(_end(pending), name="close warm clients")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


async def _connect(warm: WarmClients) -> None:
    # `prepare`, not `open`: the donor still owns the stream, and must not be fenced
    (warm.log_start, _), _ = await both(warm.reader.bounds(), warm.sink.prepare())


def _is_ready(task: asyncio.Task[None]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


async def _end(pending: _Pending) -> None:
    pending.task.cancel()
    with contextlib.suppress(BatonError, asyncio.CancelledError):
        await pending.task
    await both(pending.warm.reader.close(), pending.warm.sink.close())
