"""The newest report as charts and a table. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from services.control.http.console.drawing.plots import Bar, Row, Scale, Slots, label, start_ms, y_of
from services.control.http.console.words import count, plural, span

Period = Literal["hour", "day", "week"]
Place = Literal["anywhere", "first", "last"]

LENGTH_MS: Final[Mapping[Period, int]] = {"hour": 3_600_000, "day": 86_400_000, "week": 604_800_000}
PLACES: Final[Mapping[str, str]] = {"anywhere": "items", "first": "entries", "last": "exits"}
ENDS: Final = (
    ("ended_end", "its end fragment", "end"),
    ("ended_gap", "silence", "gap"),
    ("ended_limit", "a limit", "limit"),
)
PERCENTILES: Final = ("p50", "p90", "p99")
DURATIONS_MS: Final = (
    *(1_000, 10_000, 60_000, 600_000, 3_600_000, 36_000_000),
    *(86_400_000, 864_000_000, 8_640_000_000, 86_400_000_000),
)
"""Where the scale of durations may have a line: 1 s to 1,000 days."""
BELOW: Final = 0.15
"""How much of the plot lies below the first of these lines, if there are shorter durations: down to 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A drawing. `grid` and `times` are lines with their labels, `words` says what it shows.

    `lines`: name, y at its right end, and points of a polyline, x in thousandths of the plot's width.
    """

    words: str
    grid: Sequence[tuple[float, str]]
    times: Sequence[tuple[float, str]]
    bars: Sequence[Bar] = ()
    lines: Sequence[tuple[str, float, str]] = ()
    shares: Sequence[tuple[str, str, str]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodLine:
    """A row of the table, newest first. `cells`: as COLUMNS names them."""

    start: str
    is_unfinished: bool
    cells: Sequence[str]


COLUMNS: Final = (
    *("Sessions", "Fragments", "Lasted p50", "p90", "p99"),
    *("By end", "By silence", "By limit", "New keys", "Returning"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportPage:
    """What the page shows of one report."""

    periods: Sequence[str]
    sessions: Chart | None
    durations: Chart | None
    ends: Chart | None
    items: Sequence[tuple[str, int, float]]
    item_paths: str
    lines: Sequence[PeriodLine]


def report_page(result: Row, made_ms: int, period: Period, place: Place) -> ReportPage:
    """The page of a report that was made then; `period` is one of the report's."""
    rows: Sequence[Row] = result.get(f"{period}s", ())
    slots = Slots(rows, LENGTH_MS[period], made_ms) if rows else None
    items: Sequence[Row] = result.get(PLACES[place], ())
    most = max((row["count"] for row in items), default=1)
    return ReportPage(
        periods=periods_of(result),
        sessions=_sessions(slots, period) if slots else None,
        durations=_durations(slots) if slots else None,
        ends=_ends(slots) if slots else None,
        items=[(row["item"], row["count"], round(100 * row["count"] / max(1, most), 1)) for row in items],
        item_paths=", ".join(result.get("item_paths", ())),
        lines=[_line(row, made_ms, LENGTH_MS[period], period) for row in reversed(rows)],
    )


def periods_of(result: Row) -> list[Period]:
    """The periods that the report has rows of, the shortest first."""
    return [name for name in LENGTH_MS if result.get(f"{name}s")]


def _sessions(slots: Slots, period: Period) -> Chart:
    values = [(row["sessions"], at, row) for row, at in slots.rows]
    scale = Scale(max(value for value, _, _ in values))
    most, _, when = max(values, key=lambda one: one[0])
    return Chart(
        words=f"Sessions per {period}, {plural(len(values), period)}: at most {count(most)}, "
        f"{label(when, is_by_hour=period == 'hour')}; last {count(values[-1][0])}"
        f"{', which is not over' if slots.unfinished else ''}.",
        grid=scale.grid(),
        times=slots.times(),
        bars=[
            slots.bar(at, 0, scale.share(value), "sofar" if at in slots.unfinished else "full")
            for value, at, _ in values
        ],
    )


def _ends(slots: Slots) -> Chart:
    totals = {name: sum(row[name] for row, _ in slots.rows) for name, _, _ in ENDS}
    whole = sum(totals.values())
    scale = Scale(max(sum(row[name] for name, _, _ in ENDS) for row, _ in slots.rows))
    bars = []
    for row, at in slots.rows:
        low = 0
        for name, _, kind in ENDS:
            if row[name]:
                bars.append(slots.bar(at, scale.share(low), scale.share(low + row[name]), kind))
            low += row[name]
    shares = [(kind, words, _percent(totals[name], whole)) for name, words, kind in ENDS]
    return Chart(
        words="What ended the sessions: " + ", ".join(f"{words} {share}" for _, words, share in shares) + ".",
        grid=scale.grid(),
        times=slots.times(),
        bars=bars,
        shares=shares,
    )


def _durations(slots: Slots) -> Chart:
    found = {name: _known(slots, f"duration_ms_{name}") for name in PERCENTILES}
    every = [value for points in found.values() for value, _ in points] or [0]
    low = max((edge for edge in DURATIONS_MS[:-1] if edge <= min(every)), default=DURATIONS_MS[0])
    high = min(
        (edge for edge in DURATIONS_MS if edge >= max(every) and edge > low), default=max(DURATIONS_MS)
    )
    # 0 has no place among powers of ten: below the first line the scale is linear
    below = BELOW if min(every) < low else 0.0

    def share(value: float) -> float:
        if value < low:
            return below * value / low
        return below + (1 - below) * math.log(min(value, high) / low) / math.log(high / low)

    newest = [f"{name} {span(points[-1][0])}" for name, points in found.items() if points]
    lines = [edge for edge in (0, *DURATIONS_MS) if (low if not below else 0) <= edge <= high]
    return Chart(
        words=f"How long sessions lasted, last: {', '.join(newest)}.",
        grid=[(y_of(share(edge)), _duration(edge)) for edge in lines],
        times=slots.times(),
        lines=_apart(
            [
                (name, y_of(share(points[-1][0])), _points(slots, [(share(ms), at) for ms, at in points]))
                for name, points in found.items()
                if points
            ]
        ),
    )


def _known(slots: Slots, name: str) -> list[tuple[float, int]]:
    return [(row[name], at) for row, at in slots.rows if row[name] is not None]


def _points(slots: Slots, points: Sequence[tuple[float, int]]) -> str:
    return " ".join(f"{1000 * (at + 0.5) / slots.number:.1f},{y_of(share)}" for share, at in points)


def _apart(lines: Sequence[tuple[str, float, str]]) -> list[tuple[str, float, str]]:
    """The lines with their names at least a line of text apart; the first is the lowest."""
    placed: list[tuple[str, float, str]] = []
    for name, y, points in lines:
        placed.append((name, min(y, placed[-1][1] - 12) if placed else y, points))
    return placed


def _line(row: Row, made_ms: int, length_ms: int, period: Period) -> PeriodLine:
    at = datetime.fromisoformat(row["start"])
    day = f"{at.day} {at:%b}"
    return PeriodLine(
        start=f"{day} {at:%H:%M}" if period == "hour" else day,
        is_unfinished=start_ms(row) + length_ms > made_ms,
        cells=(
            count(row["sessions"]),
            count(row["fragments"]),
            *(span(row[f"duration_ms_{name}"]) for name in PERCENTILES),
            *(count(row[name]) for name, _, _ in ENDS),
            count(row["keys_new"]),
            count(row["keys_returning"]),
        ),
    )


def _duration(edge_ms: int) -> str:
    seconds = edge_ms // 1000
    for unit_s, name in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= unit_s:
            return f"{seconds // unit_s} {name}"
    return f"{seconds} s"


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else ""
