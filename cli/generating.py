"""A log of web visits that is made up, seeded, and whose sessions are known because they were made first.

Pure: the same seed and number of visitors give the same bytes on every machine (only `Random.random`, whose
sequence Python guarantees, and whole numbers are used). Sessions are made one by one, their lines are then
put in the order in which they "arrive", a little out of order, and numbered; nothing is assembled here.

Why the truth agrees with design section 4: lines arrive up to DISORDER_MS late, less than the lateness;
pauses inside a session stay 2 · DISORDER_MS below the gap, so no order of arrival makes one of them longer
than the gap; between two sessions of a visitor lies either an `end`, whose line arrives after all others of
its session, or more than the gap. The marker at the end of an import closes the rest.
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

GAP_MS = GroupSettings().gap_ms
DISORDER_MS = 60_000
"""How late a line may arrive; well below the group's lateness (5 min)."""
MAX_PAUSE_MS = GAP_MS - 2 * DISORDER_MS
START_MS = 1_741_000_000_000
"""3 March 2025: every time lies in the past."""
SPAN_MS = 86_400_000
"""First sessions begin within a day."""
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
    """The log of so many visitors; about 25 lines for each. Deterministic in both arguments."""
    rng = Random(seed)
    arrivals: list[tuple[int, int, int, VisitLine]] = []
    sessions = 0
    for visitor in range(visitors):
        for session in _sessions_of(rng, _key_for(visitor)):
            for arrival, line in _arrivals(rng, session):
                arrivals.append((arrival, len(arrivals), sessions, line))
            sessions += 1
    arrivals.sort(key=lambda entry: entry[:2])
    numbers: list[list[int]] = [[] for _ in range(sessions)]
    made: list[list[VisitLine]] = [[] for _ in range(sessions)]
    for number, (_, _, session_number, line) in enumerate(arrivals, 1):
        numbers[session_number].append(number)
        made[session_number].append(line)
    truth = [_truth(lines, places) for lines, places in zip(made, numbers, strict=True)]
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
    """The sessions of one visitor, each in the order of its times, at least one line."""
    time = START_MS + int(rng.random() * SPAN_MS)
    for _ in range(_draw(rng, _SESSIONS)):
        length = _draw(rng, _LENGTHS)
        ended = rng.random() < _ENDED_SESSIONS
        session = []
        for place in range(length):
            session.append(_line(rng, key, time, end=ended and place == length - 1))
            time += _pause(rng)
        yield session
        last = session[-1].time
        if ended:  # a revisit may follow at once: the end has closed the session
            time = last + 1 + int(rng.random() * rng.random() * 4 * GAP_MS)
        else:
            time = last + GAP_MS + 1 + int(rng.random() * rng.random() * 16 * GAP_MS)


def _line(rng: Random, key: str, time: int, *, end: bool) -> VisitLine:
    rank = _draw(rng, _PATHS)
    size = 200 * _draw(rng, _SIZES) + int(rng.random() * 200)
    return VisitLine(key, time, _path_for(rank), 404 if rank % 97 == 0 else 200, size, end)


def _pause(rng: Random) -> int:
    """Milliseconds to the next line: mostly seconds, now and then almost the gap; at least 0."""
    if rng.random() < _SLOW_PAUSES:
        return MAX_PAUSE_MS // 2 + int(rng.random() * (MAX_PAUSE_MS - MAX_PAUSE_MS // 2 + 1))
    return int(rng.random() * rng.random() * 90_000)


def _arrivals(rng: Random, session: Sequence[VisitLine]) -> Iterator[tuple[int, VisitLine]]:
    """The session's lines with their times of arrival; nothing arrives after an `end`."""
    closed = session[-1].time if session[-1].end else None
    for line in session:
        late = int(rng.random() * DISORDER_MS) if rng.random() < _LATE_LINES and not line.end else 0
        arrival = line.time + late
        yield (arrival if closed is None else min(arrival, closed)), line


def _key_for(visitor: int) -> str:
    """Some keys are not ASCII, as some are in life."""
    return f"visitör-{visitor:06d}" if visitor % 50 == 49 else f"visitor-{visitor:06d}"


def _path_for(rank: int) -> str:
    section = ("articles", "products", "help", "tags")[rank % 4]
    return "/" if rank == 1 else f"/{section}/{rank}"


def _long_tail(highest: int) -> list[int]:
    """Cumulated weights of the ranks 1 … highest, each proportional to rank ** -1.5, in whole numbers."""
    return list(accumulate(10**12 // isqrt(rank**3 * 10**6) for rank in range(1, highest + 1)))


def _draw(rng: Random, cumulated: Sequence[int]) -> int:
    """A rank, 1 … len(cumulated)."""
    return bisect(cumulated, int(rng.random() * cumulated[-1])) + 1


_SESSIONS = _long_tail(MAX_SESSIONS)
_LENGTHS = _long_tail(MAX_LENGTH)
_PATHS = _long_tail(PATHS)
_SIZES = _long_tail(1000)
