"""How long a connection waits for its client: for one thing at a time, and one timer bounds that.

Used by `connection.py`, which says what it waits for after whatever has happened.
"""

from __future__ import annotations

import asyncio
import enum
import math
from collections.abc import Callable

from shared.server.bounds import Bounds


class Awaited(enum.Enum):
    """What a connection waits for."""

    HEADERS = "the rest of a request's headers, or a first request"
    BODY = "the rest of the latest request's body"
    NOTHING = "nothing of the client: the next step is ours"
    IDLE = "another request, if there is one"
    READER = "the client reads its answers"
    END = "the client sees that the connection has ended"

    __hash__ = object.__hash__  # Enum's own is a function of Python's, and each request looks up three


class Patience:
    """Calls `on_late` when what is awaited has not come in time.

    The time counts from the first `expect` of it. A deadline costs nothing of the event loop as long as
    deadlines move on: an alarm that goes off too early is only set again. A request needs two deadlines, and
    a timer of the loop costs 1 µs.
    """

    def __init__(
        self,
        bounds: Bounds,
        loop: asyncio.AbstractEventLoop,
        on_late: Callable[[Awaited], None],
    ) -> None:
        self._timeouts_s = dict.fromkeys(Awaited, bounds.body_timeout_s) | {
            Awaited.HEADERS: bounds.header_timeout_s,
            Awaited.IDLE: bounds.keep_alive_s,
            Awaited.NOTHING: math.inf,
        }
        self._loop = loop
        self._on_late = on_late
        self._expected: tuple[Awaited, int] | None = None
        self._deadline_s = self._alarm_s = math.inf
        self._alarm: asyncio.TimerHandle | None = None
        self.is_over = False

    def __repr__(self) -> str:
        return f"<Patience: {self._expected[0].value if self._expected else 'none'}>"

    def expect(self, awaited: Awaited, number: int) -> None:
        """Waits for this of the request with this number; goes on waiting if it does so already."""
        if (awaited, number) == self._expected or self.is_over:
            return
        self._expected = awaited, number
        self._deadline_s = self._loop.time() + self._timeouts_s[awaited]
        if self._deadline_s < self._alarm_s:
            self._set_alarm()

    def begin_anew(self) -> None:
        """The client could not do what was awaited: the time counts from the next `expect`."""
        self._expected = None

    def stop(self) -> None:
        """Ends it for good, and breaks the reference cycle with `on_late`."""
        self.is_over = True
        self._on_late = _ignore
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _set_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_s = self._deadline_s
        self._alarm = self._loop.call_at(self._alarm_s, self._ring)

    def _ring(self) -> None:
        self._alarm, self._alarm_s = None, math.inf
        if self._loop.time() < self._deadline_s:
            if self._deadline_s < math.inf:
                self._set_alarm()
            return
        assert self._expected is not None
        awaited, _ = self._expected
        self._expected = None
        self._on_late(awaited)


def _ignore(awaited: Awaited) -> None:
    pass
