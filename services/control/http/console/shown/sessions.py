"""What the view of sessions shows: an open session with its life line, finished ones, fragments. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from services.control.core.events.ownership_history import OwnerRow
from services.control.core.found import KeyRow
from services.control.http.console.words import clock, count, plural, span
from shared.model.fragments import FragmentRejected, parse_fragment, time_of
from shared.model.open_sessions import MOST_FRAGMENTS, OpenSessionRow
from shared.model.sessions import Reason

ENDED_BY: Final[dict[Reason, str]] = {"end": "its end fragment", "gap": "silence", "limit": "a limit"}
TIMES: Final = {1: "once", 2: "twice"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeLine:
    """An open session from its first fragment to its end by silence; x in percent.

    `moves`: where it changed its owner, and to whom. `now` is None if it lies elsewhere, as in an import.
    """

    fragments: Sequence[float]
    moves: Sequence[tuple[float, str]]
    last: float
    now: float | None
    begin: str
    end: str
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FragmentLine:
    """One fragment of a session: its number from 1, its time and how long after the one before, its text."""

    number: int
    time: str
    after: str
    bytes: int
    data: str


def life_line(row: OpenSessionRow, data: Sequence[str], owners: Sequence[OwnerRow], now_ms: int) -> LifeLine:
    """The life of an open session, by event time."""
    begin, end = row.first_time, max(row.silent_after, row.last_time + 1)

    def x(at_ms: int) -> float:
        return round(100 * (at_ms - begin) / (end - begin), 2)

    known = {row.first_time, row.last_time, *(time for time in map(event_time, data) if time is not None)}
    moves = moves_of(row, owners)
    return LifeLine(
        fragments=sorted({x(time) for time in known if begin <= time <= end}),
        moves=[(x(one.since), one.owner) for one in reversed(moves) if begin <= one.since <= end],
        last=x(row.last_time),
        now=x(now_ms) if begin <= now_ms <= end else None,
        begin=clock(begin, now_ms),
        end=clock(end, now_ms),
        words=f"{plural(row.fragments, 'fragment')} from {clock(begin, now_ms)} "
        f"to {clock(row.last_time, now_ms)}; silence ends it at {clock(end, now_ms)} if nothing comes",
    )


def moves_of(row: OpenSessionRow, owners: Sequence[OwnerRow]) -> list[OwnerRow]:
    """The owners that its stream has got since it opened, newest first; the first one ever is no move."""
    return [one for one in owners if one.since > row.opened_at and one.epoch > 1]


def moved_words(moves: Sequence[OwnerRow], now_ms: int) -> tuple[str, str]:
    """How often it moved while it was open; when it did last, and for how long it stood still."""
    if not moves:
        return "never", ""
    last = moves[0]
    details = [clock(last.since, now_ms), *([span(last.pause_ms)] if last.pause_ms is not None else [])]
    return TIMES.get(len(moves), f"{count(len(moves))} times"), ", ".join(details)


def event_time(text: str) -> int | None:
    """The event time of a fragment as it was posted (ms UTC); None if it has none."""
    try:
        return time_of(parse_fragment(text.encode()))
    except FragmentRejected:
        return None


def fragment_lines(data: Sequence[str], number: int, now_ms: int) -> list[FragmentLine]:
    """The last fragments of a session that has so many; at most MOST_FRAGMENTS."""
    shown = data[-MOST_FRAGMENTS:]
    times = [event_time(text) for text in shown]
    before = [None, *times]
    return [
        FragmentLine(
            number=number - len(shown) + at + 1,
            time=clock(time, now_ms),
            after=span(time - earlier)
            if time is not None and earlier is not None and time >= earlier
            else "",
            bytes=len(text.encode()),
            data=text,
        )
        for at, (text, time, earlier) in enumerate(zip(shown, times, before, strict=False))
    ]


def open_sentence(found: KeyRow) -> str:
    """Whether the key has an open session, where that is not to be seen."""
    if not found.answered:
        return f"It is not known whether a session of this key is open: {found.why}."
    return "No session of this key is open." if found.open is None else ""


def finished_sentence(found: KeyRow) -> str:
    """What there is to say of the finished sessions besides their rows."""
    finished = found.finished
    if finished.sessions is None:
        return f"Not known: {finished.why}."
    behind = finished.behind_records
    late = f" The lake lacks {plural(behind, 'newer record')}: `baton run lake` adds them." if behind else ""
    return ("" if finished.sessions else "The lake has no finished session of this key.") + late
