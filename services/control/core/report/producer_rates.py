"""What each producer accepts and refuses per second, from the counts that it reports.

Pure. Counts carry the producer's own time, so control's pace and slow answers do not falsify a rate.
`services/control/live/view/cluster_view.py` feeds it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

WINDOW_MS = 15_000
"""The span of a rate: long enough for a second's uncertainty, short enough for a look at now."""
UNSTORED = "unstored"
"""The reason of fragments that Kafka did not acknowledge."""


class ProducerCounts(msgspec.Struct, frozen=True, kw_only=True):
    """What one producer has counted up to `at` (ms UTC, by its clock): its `GET /status`.

    `accepted` and `unstored` are fragments, `rejected` fragments by reason, `refused` requests by type of
    problem.
    """

    id: str
    at: int
    accepted: int = 0
    unstored: int = 0
    rejected: dict[str, int] = {}
    refused: dict[str, int] = {}

    def refusals(self) -> dict[str, int]:
        """All that was refused, by reason."""
        named = {UNSTORED: self.unstored} if self.unstored else {}
        reasons = dict.fromkeys([*self.rejected, *self.refused])
        return named | {name: self.rejected.get(name, 0) + self.refused.get(name, 0) for name in reasons}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerRate:
    """Per second: accepted fragments, and refused fragments and requests by reason. None: not known yet."""

    accepted_per_s: float | None = None
    refused_per_s: Mapping[str, float] | None = None


class ProducerRates:
    """The counts of the last WINDOW_MS of each producer."""

    def __init__(self) -> None:
        self._counts: dict[str, deque[ProducerCounts]] = {}

    def __repr__(self) -> str:
        return f"<ProducerRates of {len(self._counts)} producers>"

    def observe(self, reported: Mapping[str, ProducerCounts]) -> dict[str, ProducerRate]:
        """The rate of each producer that has reported, by id; the others start anew when they return."""
        self._counts = {name: self._with(name, counts) for name, counts in reported.items()}
        return {name: _rate(counts) for name, counts in self._counts.items()}

    def _with(self, name: str, newest: ProducerCounts) -> deque[ProducerCounts]:
        known = self._counts.get(name, deque())
        if known and newest.at <= known[-1].at:
            return known  # the same file as before, or an older one
        if known and not _is_after(newest, known[-1]):
            known = deque()  # it has restarted, and counts from 0
        known.append(newest)
        while len(known) > 2 and newest.at - known[1].at >= WINDOW_MS:
            known.popleft()
        return known


def _is_after(newer: ProducerCounts, older: ProducerCounts) -> bool:
    refusals = newer.refusals()
    has_all = all(refusals.get(name, 0) >= count for name, count in older.refusals().items())
    return has_all and newer.accepted >= older.accepted


def _rate(counts: deque[ProducerCounts]) -> ProducerRate:
    if len(counts) < 2:
        return ProducerRate()
    first, last = counts[0], counts[-1]
    seconds = (last.at - first.at) / 1000
    before = first.refusals()
    gained = {name: count - before.get(name, 0) for name, count in last.refusals().items()}
    return ProducerRate(
        accepted_per_s=(last.accepted - first.accepted) / seconds,
        refused_per_s={name: count / seconds for name, count in gained.items() if count},
    )
