"""The feed of events: keeps what the reader of the topic receives, and sends it to all followers.

A follower has no queue, only the id that it has reached; all followers read from the same ring of recent
events. A follower so slow that its next event has left the ring is cut off: it reconnects with
`Last-Event-ID` and learns where the list continues. Used by control's HTTP face and by `KafkaEvents`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence

from services.control.core.events.movements import READ, Movement, movements
from services.control.core.events.recent_events import EventFilter, RecentEvents, StoredEvent
from services.control.live.feed.seats import Seats
from shared.errors import KafkaUnavailable, Unavailable

HEARTBEAT_S = 15.0
"""A follower gets a heartbeat after this much silence; proxies cut connections after 30 to 60 s of it."""
RECONNECT_MS = 1_000
"""How long a client waits before it reconnects (`retry:` of server-sent events)."""
CHUNK = 200
"""Most events in one chunk: a slow follower holds at most one chunk in memory."""
MAX_FOLLOWERS = 500
"""Of all callers together, who share them fairly."""


class TooManyFollowers(Unavailable):
    """The number of followers has reached its limit."""


class EventFeed:
    """`begin` and `receive` take records in, `follow` sends them out, `close` ends all followers.

    `clock` is steady, in seconds.
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
        self._error = "they have not been read yet"
        self._changed = asyncio.Event()
        self._is_closed = False
        self.followers = Seats(MAX_FOLLOWERS)

    def __repr__(self) -> str:
        return f"<EventFeed of {self.recent_events!r} to {len(self.followers)} followers>"

    def begin(self, first: int) -> None:
        """Starts over: the topic is read from its beginning, and `first` is its first offset."""
        self.recent_events.begin(first)

    def receive(self, records: Iterable[tuple[int, bytes | None]]) -> None:
        """Keeps records (offset, value), which arrive in order, and wakes the followers."""
        for offset, value in records:
            self.recent_events.add(offset, value)
        self._wake()

    def mark_current(self) -> None:
        """Notes that everything in the topic at this moment has been received."""
        self._current_at = self._clock()

    def mark_failed(self, why: str) -> None:
        """Notes that the topic cannot be read now; received events are still served."""
        self._error = why

    def movements(self, group: str, stream: int | None = None) -> list[Movement]:
        """The movements that are remembered, newest first."""
        # a drain is an event of no stream, so streams are chosen afterwards
        wanted = EventFilter(group=group, kinds=READ)
        found = movements(self.recent_events.newest(self.recent_events.next_id, wanted))
        return [move for move in found if stream in (None, move.stream)]

    def stale_ms(self) -> int:
        """How long ago the feed was last current."""
        return 0 if self._current_at is None else int((self._clock() - self._current_at) * 1000)

    @property
    def is_read(self) -> bool:
        """Whether the topic has been read to its end once."""
        return self._current_at is not None

    def require_read(self) -> None:
        """Raises KafkaUnavailable until the topic has been read to its end once."""
        if not self.is_read:
            raise KafkaUnavailable(f"the events cannot be read: {self._error}")

    def close(self) -> None:
        """Ends every follower once it has received all present events."""
        self._is_closed = True
        self._wake()

    def follow(
        self, after: int | None, limit: int, event_filter: EventFilter, holder: str
    ) -> AsyncGenerator[bytes]:
        """Server-sent events: those after an id, or the newest `limit`, and then each new one.

        `holder`: the caller's name. Raises TooManyFollowers, KafkaUnavailable.
        """
        self.require_read()
        if not self.followers.has_room(holder):
            raise TooManyFollowers(f"there are {self.followers.most} followers already")
        return self._follow(after, limit, event_filter, holder)

    async def _follow(
        self, after: int | None, limit: int, event_filter: EventFilter, holder: str
    ) -> AsyncGenerator[bytes]:
        recent_events = self.recent_events
        seat = self.followers.take(holder)
        self._wake()  # one of the others may have lost its seat
        try:
            yield b"retry: %d\n\n" % RECONNECT_MS
            if after is None:
                reached = recent_events.next_id - 1
                yield _chunk(recent_events.newest(limit, event_filter), reached)
            elif recent_events.is_known_after(after):
                reached = after
            else:
                reached = recent_events.floor - 1
                yield b": events after %d are gone; continuing at %d\n\n" % (after, recent_events.floor)
            while recent_events.is_known_after(reached) and not seat.is_lost:
                # taken before the events are read: an event that arrives meanwhile sets this very one
                changed, until = self._changed, recent_events.next_id
                found = recent_events.after(reached, CHUNK, event_filter)
                # after a full chunk, some matching events may be left for the next round
                reached = found[-1].id if len(found) == CHUNK else until - 1
                if found:
                    yield _chunk(found, reached)
                elif self._is_closed:
                    return
                elif not await self._wait(changed):
                    yield _chunk((), reached)
        finally:
            self.followers.leave(seat)

    async def _wait(self, changed: asyncio.Event) -> bool:
        """Whether something changed within the heartbeat's time."""
        try:
            async with asyncio.timeout(self._heartbeat_s):
                await changed.wait()
        except TimeoutError:
            return False
        return True

    def _wake(self) -> None:
        # a fresh event for the next change: each follower waits on the one that it took before it read
        self._changed.set()
        self._changed = asyncio.Event()


def _chunk(found: Sequence[StoredEvent], reached: int) -> bytes:
    """The events in the format of server-sent events, and the id that was reached.

    An `id` line without data only moves the client's `Last-Event-ID`. So a client whose filter matches few
    events still reconnects with an id that has not left the ring.
    """
    lines = b"".join(b"id: %d\ndata: %b\n\n" % (stored.id, stored.row) for stored in found)
    if (found and found[-1].id == reached) or reached < 0:
        return lines or b": \n\n"
    return lines + b"id: %d\n\n" % reached
