"""Generates a log of web visits from a seed, with sessions that are known because they are generated first.

Pure: the same seed and number of visitors give the same bytes on every machine (it uses only whole numbers
and `Random.random`, whose sequence Python guarantees). Sessions are generated one by one; their lines are
then ordered by arrival, slightly out of order, and numbered. Nothing is assembled here.

The truth agrees with the rules of sessions (docs/protocol.md) for three reasons. Lines arrive at most
DISORDER_MS late, which is less than the lateness. Pauses inside a session stay 2 · DISORDER_MS below the gap,
so no order of arrival stretches one beyond the gap. Two sessions of a visitor are separated by more than the
gap, or by an `end` whose line arrives after all others of its session. The marker at the end of an import
closes the rest.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import isqrt
from random import Random
from typing import Literal

import msgspec

from shared.model.group import GroupSettings

VISITORS = 800
"""Visitors by default, about 20,000 lines: in the demo a consumer has time to die during the import."""
GAP_MS = GroupSettings().gap_ms
DISORDER_MS = 60_000
"""The latest arrival of a line after its time; well below the group's lateness (5 min)."""
MAX_PAUSE_MS = GAP_MS - 2 * DISORDER_MS
START_MS = 1_741_000_000_000
"""3 March 2025, so that every time is in the past."""
SPAN_MS = 86_400_000
"""First sessions begin within one day."""
MAX_SESSIONS = 8
MAX_LENGTH = 200
PATHS = 400
_SLOW_PAUSES = 0.03
_LATE_LINES = 0.1
_ENDED_SESSIONS = 0.4


class VisitLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of the log: NDJSON, to be imported with `--key key --time time --end end`."""

    key: str
    time: int
    path: str
    status: int
    bytes: int
    end: bool = False


class TrueSession(msgspec.Struct, frozen=True):
    """One line of the truth: a session and the numbers (from 1) of its lines in the log, ascending.

    `first_time`, `last_time`: lowest and highest time, ms; `reason`: `end`, or `gap` for silence.
    """

    key: str
    first_time: int
    last_time: int
    fragments: int
    reason: Literal["end", "gap"]
    lines: list[int]


@dataclass(frozen=True, slots=True)
class Visits:
    """A log and its truth, the sessions in the order of their first lines."""

    lines: list[VisitLine]
    truth: list[TrueSession]


def generate(visitors: int, seed: int) -> Visits:
    """A log of that many visitors, about 25 lines each. Deterministic in both arguments."""
    rng = Random(seed)
    arrivals: list[tuple[int, int, int, VisitLine]] = []
    sessions = 0
    for visitor in range(visitors):
        for session in _sessions_of(rng, _key_for(visitor)):
            for arrival, line in _arrivals(rng, session):
                arrivals.append((arrival, len(arrivals), sessions, line))
            sessions += 1
    # the running number decides between equal arrival times, so the order is the same everywhere
    arrivals.sort(key=lambda entry: entry[:2])
    numbers: list[list[int]] = [[] for _ in range(sessions)]
    sessions_lines: list[list[VisitLine]] = [[] for _ in range(sessions)]
    for number, (_, _, session_number, line) in enumerate(arrivals, 1):
        numbers[session_number].append(number)
        sessions_lines[session_number].append(line)
    truth = [_truth(lines, places) for lines, places in zip(sessions_lines, numbers, strict=True)]
    truth.sort(key=lambda session: session.lines[0])
    return Visits([line for *_, line in arrivals], truth)


def _truth(lines: Sequence[VisitLine], numbers: list[int]) -> TrueSession:
    times = [line.time for line in lines]
    return TrueSession(
        key=lines[0].key,
        first_time=min(times),
        last_time=max(times),
        fragments=len(lines),
        reason="end" if any(line.end for line in lines) else "gap",
        lines=numbers,
    )


def _sessions_of(rng: Random, key: str) -> Iterator[list[VisitLine]]:
    """The sessions of one visitor, each with at least one line, in the order of their times."""
    time = START_MS + int(rng.random() * SPAN_MS)
    for _ in range(_draw(rng, _SESSIONS)):
        # most sessions are short, a few very long, as on real sites
        length = _draw(rng, _LENGTHS)
        ended = rng.random() < _ENDED_SESSIONS
        session = []
        for place in range(length):
            session.append(_line(rng, key, time, end=ended and place == length - 1))
            # below the gap, so the session stays one
            time += _pause(rng)
        yield session
        last = session[-1].time
        if ended:  # the visitor may come back at once: the end has closed the session
            time = last + 1 + int(rng.random() * rng.random() * 4 * GAP_MS)
        else:
            time = last + GAP_MS + 1 + int(rng.random() * rng.random() * 16 * GAP_MS)


def _line(rng: Random, key: str, time: int, *, end: bool) -> VisitLine:
    rank = _draw(rng, _PATHS)
    size = 200 * _draw(rng, _SIZES) + int(rng.random() * 200)
    return VisitLine(key, time, _path_for(rank), 404 if rank % 97 == 0 else 200, size, end)


def _pause(rng: Random) -> int:
    """Milliseconds to the next line, at least 0: usually seconds, sometimes almost the gap."""
    if rng.random() < _SLOW_PAUSES:
        return MAX_PAUSE_MS // 2 + int(rng.random() * (MAX_PAUSE_MS - MAX_PAUSE_MS // 2 + 1))
    return int(rng.random() * rng.random() * 90_000)


def _arrivals(rng: Random, session: Sequence[VisitLine]) -> Iterator[tuple[int, VisitLine]]:
    """The session's lines with their arrival times; no line arrives after the `end`."""
    closed = session[-1].time if session[-1].end else None
    for line in session:
        # not the end: no line of its session may arrive after it
        late = int(rng.random() * DISORDER_MS) if rng.random() < _LATE_LINES and not line.end else 0
        arrival = line.time + late
        yield (arrival if closed is None else min(arrival, closed)), line


def _key_for(visitor: int) -> str:
    """A visitor's key; some are not ASCII, like some real keys."""
    return f"visitör-{visitor:06d}" if visitor % 50 == 49 else f"visitor-{visitor:06d}"


def _path_for(rank: int) -> str:
    section = ("articles", "products", "help", "tags")[rank % 4]
    return "/" if rank == 1 else f"/{section}/{rank}"


def _long_tail(highest: int) -> list[int]:
    """Cumulative weights of the ranks 1 … highest, proportional to rank ** -1.5, as whole numbers."""
    return list(accumulate(10**12 // isqrt(rank**3 * 10**6) for rank in range(1, highest + 1)))


def _draw(rng: Random, weights: Sequence[int]) -> int:
    """A random rank, 1 … len(weights); `weights` are cumulative."""
    return bisect(weights, int(rng.random() * weights[-1])) + 1


_SESSIONS = _long_tail(MAX_SESSIONS)
_LENGTHS = _long_tail(MAX_LENGTH)
_PATHS = _long_tail(PATHS)
_SIZES = _long_tail(1000)
