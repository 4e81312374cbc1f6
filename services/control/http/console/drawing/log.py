"""Geometry of a stream's log as its page draws it. Pure; x in percent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from services.control.http.console.words import count, listed, plural

PAST = 24.0
"""How much of the width the past gets, however long it is; without any past nothing."""
WIDTH = 31.0
"""How much of the width an offset of a trillion takes on a small screen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogMark:
    """An offset of the log: where it stands. `is_below`: its label does, beside those of others above."""

    name: str
    offset: int
    x: float
    anchor: str
    is_below: bool


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
    # on a small screen it would cover another one: it is said in words
    if position not in (safe_offset, end) and not (WIDTH if past else 0) + WIDTH / 2 < at < 100 - WIDTH / 2:
        words = f"Position {count(marks.pop()[1])}. {words}"
    alike = groupby([*marks, ("end", end, last)], key=itemgetter(1))
    return LogDrawing(
        marks=[_mark(offset, list(same)) for offset, same in alike],
        parts=[
            LogPart(name=name, x=round(x, 2), width=round(width, 2)) for name, x, width in parts if width > 0
        ],
        words=words,
    )


def _mark(offset: int, same: Sequence[tuple[str, int, float]]) -> LogMark:
    names, (_, _, x) = [name for name, _, _ in same], same[0]
    is_below = names in (["first"], ["position"])
    anchor = "middle" if names == ["position"] else "end" if x == 100 else "start"
    return LogMark(name=listed(names), offset=offset, x=round(x, 2), anchor=anchor, is_below=is_below)
