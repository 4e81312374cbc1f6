"""When the next cohort of batches leaves for a broker: pure arithmetic; `departures.py` passes the time.

A cohort is what travels in one request. The next one leaves when the last is answered, so batches grow while
a broker is busy. Clients that wait for their answer before they send again fall into two halves, one waiting
while the other flies, and each waits two round trips. So after an answer the next cohort waits for those who
were just answered, if they usually come back within a quarter of a round trip, until as many are there as
usually come back. Traffic that does not come back, or comes alone, leaves at once.
"""

from __future__ import annotations

from dataclasses import dataclass

SLOW_ROUND_S = 0.25
"""Far above a usual round trip (2 to 10 ms). One partition that is late must not hold up its broker's
others."""
HOLDS_FOR = 0.25
"""The part of a round trip for which a cohort waits at most."""
PAYS_FROM = 0.5
"""The part of the answered requests that must usually come back in that time."""
_WEIGHT = 0.125
"""Of a new sample in a smoothed value, as in TCP."""


@dataclass(slots=True, eq=False)
class Flight:
    """A cohort on its way: when it left, and how many requests wait for it."""

    left_s: float
    size: int


class Pace:
    """The pace of the cohorts to one broker, of which at most `at_once` are on their way.

    The caller counts up `waiting`, the requests that wait for the next one, and `came`, all that arrive.
    """

    def __init__(self, at_once: int = 1) -> None:
        self.waiting = self.came = 0
        self.returning = 0.0
        """The smoothed part of the answered requests that come back soon."""
        self.round_trip_s = 0.0
        """Smoothed; 0.0 before the first answer."""
        self._at_once = at_once
        self._flights: set[Flight] = set()
        self._slow: set[Flight] = set()
        self._hold_until_s = 0.0
        self._expected = 0
        self._came_before = self._answered = 0

    def __repr__(self) -> str:
        return f"<Pace: {len(self._flights)} flying, {self.waiting} waiting, {self.returning:.0%} return>"

    @property
    def is_stuck(self) -> bool:
        """Whether a slow flight has not ended yet."""
        return bool(self._slow)

    def wait_s(self, now_s: float) -> float | None:
        """How long the next cohort still waits, 0.0 if it may leave; None: for an answer."""
        if len(self._flights) >= self._at_once:
            return None
        if self._expected <= self.waiting or now_s >= self._hold_until_s:
            return 0.0
        return self._hold_until_s - now_s

    def leave(self, now_s: float, left: int = 0) -> Flight:
        """All that waits leaves, but for so many requests."""
        flight = Flight(now_s, max(0, self.waiting - left))
        self._flights.add(flight)
        self.waiting, self._expected = left, 0
        return flight

    def answered(self, flight: Flight, now_s: float) -> float:
        """A flight has ended well; how long to count who comes back, until `counted` (0.0: not at all)."""
        is_slow = flight in self._slow
        self.failed(flight)
        if is_slow:
            return 0.0
        sample_s = now_s - flight.left_s
        known_s = self.round_trip_s or sample_s
        self.round_trip_s = known_s + _WEIGHT * (sample_s - known_s)
        if flight.size < 2:  # one alone comes back alone: nothing to wait for
            return 0.0
        hold_s = HOLDS_FOR * self.round_trip_s
        if self.returning >= PAYS_FROM:
            self._hold_until_s = now_s + hold_s
            self._expected = self.waiting + int(self.returning * flight.size)
        self._answered, self._came_before = flight.size, self.came
        return hold_s

    def counted(self) -> None:
        """The time that `answered` named is over, and so is the wait, even if the timer was a bit early."""
        self._expected = 0
        sample = min(1.0, (self.came - self._came_before) / self._answered)
        self.returning += _WEIGHT * (sample - self.returning)

    def failed(self, flight: Flight) -> None:
        """A flight has ended, and says nothing about the usual round trip."""
        self._flights.discard(flight)
        self._slow.discard(flight)

    def release_slow(self, now_s: float) -> bool:
        """The next cohort no longer waits for the flights that are slow; whether there is a new one."""
        slow = {flight for flight in self._flights if now_s - flight.left_s > SLOW_ROUND_S}
        self._flights -= slow
        self._slow |= slow
        return bool(slow)
