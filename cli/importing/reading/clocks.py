"""Finds the times of a log that a wrong clock has made: far ahead of the lines around them, or before 2000.

Pure. One line far ahead ends everybody's sessions, because it moves event time for all keys of its stream. So
a record that jumps ahead is held back, with those that follow it, until these show whether the log has moved
on or only this one line. All other records pass at once. Used by `reading/fragment_reader.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Generic, Literal, TypeVar

T = TypeVar("T")
Doubt = Literal["ahead", "early"]
DOUBTS: tuple[Doubt, ...] = ("ahead", "early")
LIKELY_FROM_MS = 946_684_800_000
"""2000-01-01: an earlier time likely stands for seconds read as ms, or for a clock that was not set."""
NEIGHBOURS = 16
"""How many records after a jump decide."""
MOST_HELD = 1000
"""How many records may be held back, also without times, as of lines that cannot be read."""
DAY_MS = 86_400_000
"""A jump at the end of the log, where no record follows, is in doubt if it is larger than this."""


class ClockWatch(Generic[T]):
    """Judges the times of a log's records, in order; `jump_ms` is how far ahead ends the sessions of others.

    Each record is fed with its time, None if it has none, and comes out once, in order, with its doubt.
    """

    def __init__(self, jump_ms: int) -> None:
        self._jump_ms = jump_ms
        self._high: int | None = None
        """The highest time that is not in doubt."""
        self._held: deque[tuple[T, int | None]] = deque()
        self._timed = 0
        """How many of those held back have a time."""

    def feed(self, record: T, time_ms: int | None) -> Sequence[tuple[T, Doubt | None]]:
        """The records that are judged with this one."""
        if not self._held and not self._is_jump(time_ms):
            return ((record, self._passed(time_ms)),)
        self._held.append((record, time_ms))
        self._timed += time_ms is not None
        judged = []
        while self._held and (not self._is_jump(self._held[0][1]) or self._is_enough()):
            judged.append(self._judged())
        return judged

    def finish(self) -> Sequence[tuple[T, Doubt | None]]:
        """The records that are still held back, with what is known of them."""
        return [self._judged() for _ in range(len(self._held))]

    def _is_enough(self) -> bool:
        return self._timed > NEIGHBOURS or len(self._held) > MOST_HELD

    def _is_jump(self, time_ms: int | None) -> bool:
        # nothing is known of the first record
        return time_ms is not None and (self._high is None or time_ms > self._high + self._jump_ms)

    def _judged(self) -> tuple[T, Doubt | None]:
        record, time_ms = self._held.popleft()
        self._timed -= time_ms is not None
        if time_ms is None or not self._is_jump(time_ms) or not self._is_alone(time_ms):
            return record, self._passed(time_ms)
        return record, "ahead"

    def _is_alone(self, time_ms: int) -> bool:
        after = [later for _, later in self._held if later is not None]
        if not after:
            return self._high is not None and time_ms > self._high + DAY_MS
        return 2 * sum(later < time_ms - self._jump_ms for later in after) > len(after)

    def _passed(self, time_ms: int | None) -> Doubt | None:
        if time_ms is None:
            return None
        self._high = time_ms if self._high is None else max(self._high, time_ms)
        return "early" if time_ms < LIKELY_FROM_MS else None
