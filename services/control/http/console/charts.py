"""Geometry of the drawings that the server makes: where the marks stand. Pure; x in percent, y in pixels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from services.control.http.console.movements import Movement, counts_of
from services.control.http.console.words import plural, span

LEAST_MS, MOST_MS = 10.0, 10_000.0
BAR = 100
TOP, BOTTOM = 12.0, 162.0
LEFT, RIGHT = 5.0, 99.0
TIMES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseChart:
    """The pauses over time, by powers of ten. `points`: x, y and whether it was warm."""

    lines: Sequence[tuple[float, str]]
    points: Sequence[tuple[float, float, bool]]
    times: Sequence[tuple[float, str]]
    median_y: float | None
    words: str


def share_of_decades(pause_ms: float) -> float:
    """Where a pause lies between 10 ms (0) and 10 s (1), by powers of ten.

    >>> [round(share_of_decades(ms), 2) for ms in (1, 10, 100, 1000, 10_000, 60_000)]
    [0.0, 0.0, 0.33, 0.67, 1.0, 1.0]
    """
    clamped = min(max(pause_ms, LEAST_MS), MOST_MS)
    return math.log10(clamped / LEAST_MS) / math.log10(MOST_MS / LEAST_MS)


def pause_width(pause_ms: float | None) -> int:
    """The length of a pause's bar in pixels; 0 if it is not known."""
    return 0 if pause_ms is None else max(4, round(BAR * share_of_decades(pause_ms)))


def pauses(moves: Sequence[Movement], now_ms: int, span_ms: int | None) -> PauseChart | None:
    """The chart of the movements whose pause is known; None without any."""
    known = [move for move in moves if move.pause_ms is not None]
    if not known:
        return None
    begin = now_ms - span_ms if span_ms is not None else min(move.at for move in known)
    width = max(1, now_ms - begin)

    def x(at_ms: int) -> float:
        return round(LEFT + (RIGHT - LEFT) * min(1.0, max(0.0, (at_ms - begin) / width)), 2)

    counts = counts_of(moves)
    ticks = [begin + width * n // TIMES for n in range(1, TIMES)]
    return PauseChart(
        lines=[(_y(ms), span(ms)) for ms in (10_000, 1_000, 100, 10)],
        points=[(x(move.at), _y(move.pause_ms or 0), move.is_warm is not False) for move in known],
        times=[(x(at), f"{datetime.fromtimestamp(at / 1000, UTC):%H:%M}") for at in ticks],
        median_y=_y(counts.median_ms) if counts.median_ms is not None else None,
        words=f"{plural(len(known), 'pause')}, median {span(counts.median_ms)}, "
        f"longest {span(counts.longest_ms)}",
    )


def _y(pause_ms: float) -> float:
    return round(BOTTOM - (BOTTOM - TOP) * share_of_decades(pause_ms), 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogMark:
    """An offset of the log: where it stands."""

    name: str
    offset: int
    x: float
    anchor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPart:
    """A stretch between two offsets."""

    name: str
    x: float
    width: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDrawing:
    """A stream's log: what is accounted for (drawn short), what a replay would read, and the lag."""

    marks: Sequence[LogMark]
    parts: Sequence[LogPart]
    words: str


PAST = 24.0
"""How much of the width the past gets, however long it is."""


def log_drawing(first: int, safe_offset: int, position: int, end: int) -> LogDrawing:
    """The log, with replay and lag as lengths."""
    replay, lag = max(0, position - safe_offset), max(0, end - position)
    rest = 100.0 - PAST
    at = PAST + (rest * replay / (replay + lag) if replay + lag else rest)
    parts = [("past", 0.0, PAST), ("replay", PAST, at - PAST), ("lag", at, 100.0 - at)]
    marks = [("first", first, 0.0, "start"), ("safe offset", safe_offset, PAST, "start")]
    # marks that would cover each other become one
    middle = [("position", position, at, "middle")] if PAST + 8 < at < 92 else []
    last = "end" if middle or lag else "position and end"
    marks += [*middle, (last, end, 100.0, "end")]
    return LogDrawing(
        marks=[
            LogMark(name=name, offset=offset, x=round(x, 2), anchor=anchor)
            for name, offset, x, anchor in marks
        ],
        parts=[
            LogPart(name=name, x=round(x, 2), width=round(width, 2))
            for name, x, width in parts
            if width > 0 and (name != "replay" or replay) and (name != "lag" or lag)
        ],
        words=f"{plural(replay, 'record')} to replay, {plural(lag, 'record')} behind the end.",
    )
