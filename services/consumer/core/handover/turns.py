"""Which of the streams that are on their way to this member may stand still now.

Pure. Copies travel side by side while their streams run on. The pause of a stream begins when the recipient
answers its copy, so the recipient decides when that is: streams take turns, in the order of their copies, and
a turn ends when the stream is open here. More than one at a time would only share the same two processes, and
each would stand still for longer. Only while a donor is too late to finish its drain in time, there are more.
The shell is `handover/arrivals.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

MOST_AT_ONCE = 4
"""More gain nothing: both members are busy by then, and a stream stands still for that much longer."""
TURN_LIMIT_S = 1.0
"""A turn that takes longer has failed or stalled, and holds up the others no more."""
WAIT_LIMIT_S = 4.0
"""A copy that has waited for this long gets its turn: its donor waits 14 s for the answer."""
WEIGHT = 0.25
"""Of the newest time between two ends of turns in their average."""
SPARE = 1.25
"""A drain plans to be done in its time divided by this: copies come first, and turns may become slower."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A stream whose copy is here. Its donor has `left` streams for this member, to move within `within_ms`
    (0: in no hurry)."""

    donor: str
    left: int
    within_ms: int
    since_s: float


class Turns:
    """The streams that wait for their turn, in order, and those that have it.

    >>> turns = Turns()
    >>> for stream in (3, 5):
    ...     turns.ask(stream, donor="a", left=2, within_ms=20_000, now_s=0.0)
    >>> turns.due(0.0), turns.due(0.01)
    ([3], [])
    >>> turns.end(3, 0.02)
    >>> turns.due(0.02)
    [5]
    """

    def __init__(self) -> None:
        self.at_once = 1
        self._waiting: dict[int, Waiting] = {}
        self._standing: dict[int, float] = {}
        """Stream → when its turn began."""
        self._average_s = 0.0
        """Between the ends of two turns, without the time in which nothing waited."""
        self._last_s = 0.0
        """When the last turn ended, or the first one of a series began."""
        self._ended = 0
        """Turns since `at_once` has changed."""

    def __repr__(self) -> str:
        return f"<Turns: {sorted(self._standing)} before {list(self._waiting)}, {self.at_once} at once>"

    @property
    def standing(self) -> int:
        """How many streams have their turn."""
        return len(self._standing)

    def ask(self, stream: int, *, donor: str, left: int, within_ms: int, now_s: float) -> None:
        """The stream's copy has arrived (again): it waits for its turn."""
        self._standing.pop(stream, None)  # its donor did not get the last answer, so it runs on
        before = self._waiting.get(stream)
        since_s = before.since_s if before is not None else now_s
        self._waiting[stream] = Waiting(donor=donor, left=left, within_ms=within_ms, since_s=since_s)

    def due(self, now_s: float) -> list[int]:
        """The streams whose turn begins now."""
        for stream in [n for n, since_s in self._standing.items() if now_s - since_s >= TURN_LIMIT_S]:
            self.end(stream, now_s)
        if not self._standing:
            self._last_s = now_s
        free = self.at_once - len(self._standing)
        found = [
            stream
            for place, (stream, one) in enumerate(self._waiting.items())
            if place < free or now_s - one.since_s >= WAIT_LIMIT_S
        ]
        for stream in found:
            del self._waiting[stream]
            self._standing[stream] = now_s
        return found

    def next_s(self) -> float | None:
        """When to look again even if nothing ends before; None if nothing waits."""
        if not self._waiting:
            return None
        ends = [since_s + TURN_LIMIT_S for since_s in self._standing.values()]
        return min([*ends, *(one.since_s + WAIT_LIMIT_S for one in self._waiting.values())])

    def end(self, stream: int, now_s: float) -> None:
        """The stream is open here, or will not come."""
        self._waiting.pop(stream, None)
        if self._standing.pop(stream, None) is None:
            return
        took_s, self._last_s = now_s - self._last_s, now_s
        self._average_s += (WEIGHT if self._average_s else 1.0) * (took_s - self._average_s)
        self._ended += 1
        if self._ended >= 2 * self.at_once:  # by then the average shows what the last change has brought
            self._adapt()

    def _adapt(self) -> None:
        """One more at once while donors are late, one fewer when half of the pace would do."""
        # of each donor the latest word
        hurries = {one.donor: one for one in self._waiting.values() if one.within_ms > 0}
        needed = SPARE * sum(one.left * self._average_s * 1000 / one.within_ms for one in hurries.values())
        before = self.at_once
        if needed > 1:
            self.at_once = min(MOST_AT_ONCE, before + 1)
        elif needed < 0.5:
            self.at_once = max(1, before - 1)
        if self.at_once != before:
            self._ended = 0
