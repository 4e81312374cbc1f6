"""Geometry of a stream's log as its page draws it. Pure; x in percent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from services.control.http.console.words import count, listed, plural

PAST = 24.0
"""How much of the width the past gets, however long it is; without any past nothing."""


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


def log_drawing(first: int, safe_offset: int, position: int, end: int) -> LogDrawing:
    """The log, with replay and lag as lengths. Equal offsets have one mark, and no length between them."""
    replay, lag = max(0, position - safe_offset), max(0, end - position)
    past = (PAST if replay + lag else 100.0) if safe_offset > first else 0.0
    at = past + ((100.0 - past) * replay / (replay + lag) if replay + lag else 0.0)
    last = 100.0 if past or lag or replay else 0.0
    parts = [("past", 0.0, past), ("replay", past, at - past), ("lag", at, last - at)]
    marks = [("first", first, 0.0), ("safe offset", safe_offset, past), ("position", position, at)]
    words = f"{plural(replay, 'record')} to replay, {plural(lag, 'record')} behind the end."
    # one that would cover another is said below
    if position not in (safe_offset, end) and not max(past, 8) + 8 < at < 92:
        words = f"Position {count(marks.pop()[1])}. {words}"
    return LogDrawing(
        marks=[
            LogMark(
                name=listed([name for name, _, _ in same]),
                offset=offset,
                x=round(same[0][2], 2),
                anchor="middle"
                if same[0][0] == "position" and at < 100
                else "end"
                if same[0][2] == 100
                else "start",
            )
            for offset, same in _alike([*marks, ("end", end, last)])
        ],
        parts=[
            LogPart(name=name, x=round(x, 2), width=round(width, 2)) for name, x, width in parts if width > 0
        ],
        words=words,
    )


def _alike(marks: list[tuple[str, int, float]]) -> list[tuple[int, list[tuple[str, int, float]]]]:
    return [(offset, list(same)) for offset, same in groupby(marks, key=itemgetter(1))]
