"""The feed of events: what the topic brings goes into the history, and to everybody who follows.

A follower has no queue of its own, only the id that it has come to; all read from the one history. One
that is so slow that the next event has left the history meanwhile is cut off: it comes back with
`Last-Event-ID` and is told what it missed. Used by control's HTTP face and by the reader of the topic.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence

from services.control.core.recent_events import RecentEvents, StoredEvent, Wanted
from shared.errors import KafkaUnavailable, Unavailable

HEARTBEAT_S = 15.0
"""Silence after which a follower gets a sign of life; proxies cut what is silent for 30 to 60 s."""
RECONNECT_MS = 1_000
CHUNK = 200
"""Events that are sent to a follower at once; what it has not taken of them is all that it holds up."""
MAX_FOLLOWERS = 500


class TooManyFollowers(Unavailable):
    """No more may follow just now."""


class EventFeed:
    """Takes records in by `begin` and `receive`, and gives them out; `close` ends all who follow.

    `clock` in seconds, steady.
    """

    def __init__(
        self,
        recent_events: RecentEvents | None = None,
        *,
        heartbeat_s: float = HEARTBEAT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.recent_events = recent_events or RecentEvents()
        self._heartbeat_s = heartbeat_s
        self._clock = clock
        self._current_at: float | None = None
        self._why_not = "they have not been read yet"
        self._changed = asyncio.Event()
        self._is_closed = False
        self.followers = 0

    def __repr__(self) -> str:
        return f"<EventFeed of {self.recent_events!r} to {self.followers} followers>"

    def begin(self, first: int) -> None:
        """The topic is read from its first record on, and holds nothing before that offset."""
        self.recent_events.begin(first)

    def receive(self, records: Iterable[tuple[int, bytes | None]]) -> None:
        """Takes in records (offset, value) in their order, and wakes the followers."""
        for offset, value in records:
            self.recent_events.add(offset, value)
        self._wake()

    def is_current(self) -> None:
        """All that the topic holds at this moment has been received."""
        self._current_at = self._clock()

    def fails(self, why: str) -> None:
        """The topic cannot be read just now; what was received stands."""
        self._why_not = why

    def stale_ms(self) -> int:
        """How long ago all was received."""
        return 0 if self._current_at is None else int((self._clock() - self._current_at) * 1000)

    def require_read(self) -> None:
        """Raises KafkaUnavailable while the topic has never been read to its end."""
        if self._current_at is None:
            raise KafkaUnavailable(f"the events cannot be read: {self._why_not}")

    def close(self) -> None:
        """Ends every follower once it has got what was received until now."""
        self._is_closed = True
        self._wake()

    def follow(self, after: int | None, limit: int, wanted: Wanted) -> AsyncGenerator[bytes]:
        """Server-sent events: those after an id, or the newest `limit`, and then whatever comes.

        Raises TooManyFollowers, KafkaUnavailable.
        """
        self.require_read()
        if self.followers >= MAX_FOLLOWERS:
            raise TooManyFollowers(f"{MAX_FOLLOWERS} follow already")
        return self._follow(after, limit, wanted)

    async def _follow(self, after: int | None, limit: int, wanted: Wanted) -> AsyncGenerator[bytes]:
        recent_events = self.recent_events
        self.followers += 1
        try:
            yield b"retry: %d\n\n" % RECONNECT_MS
            if after is None:
                reached = recent_events.next_id - 1
                yield _chunk(recent_events.newest(limit, wanted), reached)
            elif recent_events.is_known_after(after):
                reached = after
            else:
                reached = recent_events.floor - 1
                yield b": not all that came after %d is kept; this goes on with %d\n\n" % (
                    after,
                    recent_events.floor,
                )
            while recent_events.is_known_after(reached):
                changed, until = self._changed, recent_events.next_id
                found = recent_events.after(reached, CHUNK, wanted)
                # a full chunk may leave some for the next round
                reached = found[-1].id if len(found) == CHUNK else until - 1
                if found:
                    yield _chunk(found, reached)
                elif self._is_closed:
                    return
                elif not await self._is_woken(changed):
                    yield _chunk((), reached)
        finally:
            self.followers -= 1

    async def _is_woken(self, changed: asyncio.Event) -> bool:
        try:
            async with asyncio.timeout(self._heartbeat_s):
                await changed.wait()
        except TimeoutError:
            return False
        return True

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def _chunk(found: Sequence[StoredEvent], reached: int) -> bytes:
    """The events as server-sent ones, and the id that was reached, which a client only keeps in mind.

    So one who wants few of the events does not come back with an id that nobody remembers.
    """
    lines = b"".join(b"id: %d\ndata: %b\n\n" % (told.id, told.row) for told in found)
    if (found and found[-1].id == reached) or reached < 0:
        return lines or b": \n\n"
    return lines + b"id: %d\n\n" % reached
