"""How many bytes had been read at which position, so that `Stream` knows how long a replay would be.

A new owner replays from the safe offset to the position. The offsets say how many fragments that is at most,
but not how many bytes. So the stream leaves a mark after each batch, and forgets those below the safe offset.
Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

POINTS = 64
"""How many marks a handover sends: parking needs no more."""


class ReadMarks:
    """Pairs of a position and the bytes that had been read there, ascending; always at least one."""

    def __init__(self, marks: Iterable[tuple[int, int]]) -> None:
        self._marks = deque(marks)

    def __repr__(self) -> str:
        return f"<ReadMarks {self._marks[0]} … {self._marks[-1]}>"

    def add(self, position: int, bytes_read: int) -> None:
        """Leaves a mark at the end of a batch."""
        self._marks.append((position, bytes_read))

    def forget_below(self, safe_offset: int) -> None:
        """Forgets the marks that no replay from that offset needs."""
        while len(self._marks) > 1 and self._marks[1][0] <= safe_offset:
            self._marks.popleft()

    @property
    def last_batch(self) -> int:
        """Bytes of the batch that was read last."""
        return self._marks[-1][1] - self._marks[max(-2, -len(self._marks))][1]

    def bytes_at(self, offset: int) -> int:
        """How many bytes had been read at the last mark at or below `offset`; below all marks, at the
        first."""
        found = self._marks[0][1]
        for position, read in self._marks:
            if position > offset:
                break
            found = read
        return found

    def first_after(self, bytes_read: int) -> int:
        """The first marked position at which at least that many bytes had been read; 0 for none."""
        return next((position for position, read in self._marks if read >= bytes_read), 0)

    def points(self) -> list[tuple[int, int]]:
        """At most `POINTS` + 1 of the marks, evenly spread, the first among them."""
        marks = list(self._marks)
        # -(-a // b) rounds up
        return marks[:: max(1, -(-len(marks) // POINTS))]
