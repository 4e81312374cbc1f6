"""Fetches the records that a stream's worker folds next, if they come from the log that was read before.

One fetch at a time, none while the group is paused. A reader begins one record before the position, at every
opening and after every pause, and by itself when it has connected anew: by that record
`core/commits/last_record.py` recognizes the log. Used by `worker.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import Any

from services.consumer.core.commits.last_record import LogChanged, LogLost
from services.consumer.core.commits.stream import Stream
from services.consumer.core.sessions.record import Record
from services.consumer.ports import FragmentReader
from services.consumer.stream.pause import GroupPause
from shared.errors import KafkaUnavailable, Unavailable

LATE_FETCH_S = 5.0
"""A fetch that overstays its time by this much hangs; we stop waiting, and the reader can be replaced."""
LAST_FETCH_S = 0.2
"""At a stop, the time for records that the reader already holds: short, as the stream stands still."""
logger = logging.getLogger(__name__)


class Fetching:
    """The fetches of one stream's worker."""

    def __init__(self, stream: int, pause: GroupPause) -> None:
        self._stream = stream
        self._pause = pause
        self._fetch: asyncio.Future[Sequence[Record]] | None = None
        self._must_reopen = False

    def __repr__(self) -> str:
        return f"<Fetching of stream {self._stream}, {self._pause!r}>"

    def begin(self) -> None:
        """The stream has a new reader."""
        self._must_reopen = False

    def interrupt(self) -> None:
        """Ends the wait for records: whether they may be read has changed."""
        if self._fetch is not None:
            self._fetch.cancel()

    def reopen(self) -> None:
        """Makes the next `take` fail: its reader makes no progress."""
        self._must_reopen = True
        self.interrupt()  # the worker may wait for it for long

    async def take(
        self, core: Stream, reader: FragmentReader, wait_s: float, stopping: asyncio.Future[Any]
    ) -> Sequence[Record]:
        """The next records; none after `wait_s`, in a pause, or at once when it is asked to stop.

        Raises KafkaUnavailable, LogLost, LogChanged.
        """
        if self._pause.is_on:
            await self._pause.sit_out(wait_s, stopping)
            return ()
        fetch = self._fetch = asyncio.ensure_future(reader.fetch(wait_s))
        try:
            await asyncio.wait(
                (fetch, stopping), timeout=wait_s + LATE_FETCH_S, return_when=asyncio.FIRST_COMPLETED
            )
            if self._must_reopen:
                raise KafkaUnavailable(f"stream {self._stream}: the reader makes no progress")
            # a fetch that hangs counts as empty: the watchdog sees no progress and asks us to reopen
            records = fetch.result() if fetch.done() and not fetch.cancelled() else ()
        finally:
            fetch.cancel()
        return _admit(core, records)

    async def last(self, core: Stream, reader: FragmentReader) -> Sequence[Record]:
        """The records that the reader already holds; none in a pause, nor after a failure."""
        if self._pause.is_on:
            return ()
        with contextlib.suppress(TimeoutError, Unavailable, LogLost, LogChanged):
            async with asyncio.timeout(LAST_FETCH_S):
                return _admit(core, await reader.fetch(0.0))
        return ()


async def seek(core: Stream, reader: FragmentReader) -> None:
    """Reads on from the position, or from one record before it, by which the log is recognized."""
    core.last_record.expect()
    await reader.open(core.reads_from)


def warn_if_not_compared(core: Stream) -> None:
    """Logs that retention has removed the record by which the log would be recognized."""
    if core.last_record.comparison == "gone":
        logger.warning("log not compared", extra={"stream": core.stream, "position": core.position})


def _admit(core: Stream, records: Sequence[Record]) -> Sequence[Record]:
    """Those of the records that follow the position.

    Raises LogLost or LogChanged if the log is not the one that was read before, KafkaUnavailable if the
    reader has gone back to its beginning.
    """
    if records and records[0].offset < core.position - 1:
        raise KafkaUnavailable(f"the log begins again at {records[0].offset}: {core!r}")
    before = core.last_record.comparison
    new = core.admit(records)
    if before != "gone":
        warn_if_not_compared(core)
    return new
