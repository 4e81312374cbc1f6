"""One timer for a connection that waits for one thing at a time.

Setting and clearing a deadline costs nothing of the event loop as long as deadlines move on: a timer that
goes off too early is only set again. A request needs two deadlines, a timer of the loop costs 1 µs.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable


class Timer:
    """Calls `expired` once the deadline has passed; `stop` it at the end."""

    __slots__ = ("_alarm", "_alarm_s", "_deadline_s", "_expired", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, expired: Callable[[], None]) -> None:
        self._loop = loop
        self._expired = expired
        self._deadline_s = self._alarm_s = math.inf
        self._alarm: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<Timer until {self._deadline_s:.3f}>"

    @property
    def is_stopped(self) -> bool:
        """Whether it has ended for good."""
        return self._expired is _nothing

    def start(self, timeout_s: float) -> None:
        """Sets the deadline, in place of the one before."""
        self._deadline_s = self._loop.time() + timeout_s
        if self._deadline_s < self._alarm_s:
            self._set_alarm()

    def clear(self) -> None:
        """There is no deadline."""
        self._deadline_s = math.inf

    def stop(self) -> None:
        """Ends it for good, and breaks the reference cycle with `expired`."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._expired = _nothing
        self._alarm_s = -math.inf

    def _set_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_s = self._deadline_s
        self._alarm = self._loop.call_at(self._alarm_s, self._on_alarm)

    def _on_alarm(self) -> None:
        self._alarm, self._alarm_s = None, math.inf
        if self._loop.time() >= self._deadline_s:
            self._deadline_s = math.inf
            self._expired()
        elif self._deadline_s < math.inf:
            self._set_alarm()


def _nothing() -> None:
    pass
