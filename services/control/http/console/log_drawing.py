"""Geometry of a stream's log as its page draws it. Pure; x in percent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from services.control.http.console.words import plural

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
    """The log, with replay and lag as lengths."""
    replay, lag = max(0, position - safe_offset), max(0, end - position)
    past = PAST if safe_offset > first else 0.0
    rest = 100.0 - past
    at = past + (rest * replay / (replay + lag) if replay + lag else rest)
    parts = [("past", 0.0, past), ("replay", past, at - past), ("lag", at, 100.0 - at)]
    # marks that would cover each other become one
    marks = [("first", first, 0.0, "start"), ("safe offset", safe_offset, past, "start")]
    if not past:
        marks = [("first and safe offset", first, 0.0, "start")]
    middle = [("position", position, at, "middle")] if max(past, 8) + 8 < at < 92 else []
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
