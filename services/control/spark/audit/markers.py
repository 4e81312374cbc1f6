"""Finds the first marker of a stream that closes a session, by bisection.

Pure. A marker closes every open session of its stream whose last time is not above its own. A key needs only
the first such marker between two of its fragments. There may be millions of markers, so a pyramid of maxima
finds it in logarithmic time. Used by `fold.py`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple


class Mark(NamedTuple):
    """A marker with a time (ms): closes every open session with last_t <= time."""

    offset: int
    time: int


class Markers:
    """Markers by offset. `Markers(marks)` sorts them."""

    __slots__ = ("_levels", "_offsets")

    def __init__(self, marks: Iterable[Mark] = ()) -> None:
        ordered = sorted(marks)
        self._offsets = [mark.offset for mark in ordered]
        # level n holds the highest time of each 2^n markers in a row
        self._levels = [[mark.time for mark in ordered]]
        while len(below := self._levels[-1]) > 1:
            self._levels.append([max(below[at : at + 2]) for at in range(0, len(below), 2)])

    def __repr__(self) -> str:
        return f"<{len(self._offsets)} Markers>"

    def first(self, after: int, before: int | None, time: int) -> int | None:
        """The offset of the first marker between `after` and `before` (None: no bound) with a time >= `time`.

        >>> Markers([Mark(3, 50), Mark(5, 90), Mark(8, 70)]).first(3, None, 60)
        5
        """
        if not self._offsets:
            return None
        at = bisect_right(self._offsets, after)
        at = self._next(at, time)
        if at == len(self._offsets) or (before is not None and self._offsets[at] >= before):
            return None
        return self._offsets[at]

    def _next(self, at: int, time: int) -> int:
        """The index of the first marker from index `at` on with a time >= `time`; without one, the count."""
        levels = self._levels
        level = 0
        # climb while the whole block is too early, then descend to the first marker that is not
        while at < len(levels[level]) and levels[level][at] < time:
            at += 1
            while at % 2 == 0 and level + 1 < len(levels):
                at //= 2
                level += 1
        if at >= len(levels[level]):
            return len(levels[0])
        while level:
            level -= 1
            at *= 2
            if levels[level][at] < time:
                at += 1
        return at
