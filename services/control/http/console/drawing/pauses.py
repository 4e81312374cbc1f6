"""The pauses of streams that moved, drawn over time and as a distribution. Pure; x in percent, y in pixels.

Both drawings have the same scale from 10 ms to 10 s, by powers of ten, so they can stand side by side.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from services.control.core.events.movements import Cause, Movement, MovementCounts, by_cause
from services.control.http.console.words import plural, span

LEAST_MS, MOST_MS = 10.0, 10_000.0
BAR: Final = 100
TOP, BOTTOM = 12.0, 162.0
LEFT, RIGHT = 5.0, 99.0
LAST_LABEL: Final = 96.0
BINS: Final = 15
"""Bars of the distribution: five for each power of ten."""
LABEL: Final = 14.0
"""Pixels that two labels need between them."""
TOGETHER: Final = 2
"""Streams that a cause must have moved to get a label on the time line."""
MOST_LABELS: Final = 6
MOST_WHY: Final = 40
"""Letters of a label, at most."""
LETTER, BESIDE = 0.75, 1.0
"""A letter's width and a label's distance from its point, in percent of a drawing 800 px wide."""
DAY_MS: Final = 86_400_000
STEPS_MS: Final = (
    *(1_000, 10_000, 60_000, 300_000, 900_000, 1_800_000),
    *(3_600_000, 7_200_000, 14_400_000, 43_200_000, DAY_MS),
)
"""Round times from one label of the time line to the next."""
TIMES: Final = 6
"""Labels of the time line, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantile:
    """A named pause: where its line is, and where there is room for its label."""

    text: str
    y: float
    label_y: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseLabel:
    """Why several streams moved together, beside the longest of their pauses; `anchor` is SVG's."""

    text: str
    x: float
    y: float
    anchor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseChart:
    """The pauses over time and their distribution.

    `points`: x, y and whether it was warm. `bars`: top and width of the bars of the
    distribution, each `bar_height` high; `of` says whose. `causes` are those with most streams.
    """

    lines: Sequence[tuple[float, str]]
    points: Sequence[tuple[float, float, bool]]
    causes: Sequence[CauseLabel]
    of: str
    times: Sequence[tuple[float, str]]
    bars: Sequence[tuple[float, float]]
    bar_height: float
    quantiles: Sequence[Quantile]
    words: str
    distribution: str


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


def pause_chart(
    moves: Sequence[Movement], counts: MovementCounts, now_ms: int, span_ms: int | None
) -> PauseChart | None:
    """The chart of these movements, whose sums are `counts`; None if no pause is known.

    The distribution is that of the handovers, and only without any that of the take-overs: in one, the few
    long pauses of the others would hide what a handover costs.
    """
    known = [(move.at, move.pause_ms, move.is_warm) for move in moves if move.pause_ms is not None]
    if not known:
        return None
    begin = now_ms - span_ms if span_ms is not None else min(at for at, _, _ in known)
    width = max(1, now_ms - begin)

    def x(at_ms: int) -> float:
        return round(LEFT + (RIGHT - LEFT) * min(1.0, max(0.0, (at_ms - begin) / width)), 2)

    is_of_handovers = counts.handover_pauses.median_ms is not None
    pauses = counts.handover_pauses if is_of_handovers else counts.takeover_pauses
    kept = [
        move.pause_ms for move in moves if move.is_handover is is_of_handovers and move.pause_ms is not None
    ]
    of = plural(len(kept), "handover" if is_of_handovers else "take-over")
    named = [("longest", pauses.longest_ms), ("p99", pauses.p99_ms), ("median", pauses.median_ms)]
    texts = [(f"{name} {span(ms)}", ms) for name, ms in named if ms is not None]
    return PauseChart(
        lines=[
            (_y(ms), text) for ms, text in ((10_000, "10 s"), (1_000, "1 s"), (100, "100 ms"), (10, "10 ms"))
        ],
        points=[(x(at), _y(ms), is_warm is not False) for at, ms, is_warm in known],
        causes=_cause_labels(by_cause(moves), x),
        times=[(x(at), text) for at, text in time_labels(begin, now_ms) if x(at) <= LAST_LABEL],
        bars=_bars(kept),
        bar_height=(BOTTOM - TOP) / BINS,
        quantiles=_quantiles(texts),
        of=of,
        words=f"{plural(len(known), 'pause')} over time",
        distribution=f"How long {of} paused: " + ", ".join(text for text, _ in texts),
    )


def _cause_labels(causes: Sequence[Cause], x: Callable[[int], float]) -> list[CauseLabel]:
    """The labels of causes that moved several streams; one that would cover a larger one is left out."""
    found: list[CauseLabel] = []
    taken: list[tuple[float, float, float]] = []
    for cause in sorted(causes, key=lambda one: (-len(one.moves), -one.at)):
        if len(cause.moves) < TOGETHER or cause.longest_ms is None or not cause.why:
            continue
        first, last = x(cause.moves[-1].at), x(cause.at)
        text = cause.why if len(cause.why) <= MOST_WHY else f"{cause.why[: MOST_WHY - 1]}…"
        is_left = last + BESIDE + len(text) * LETTER > RIGHT
        begin = first - BESIDE - len(text) * LETTER if is_left else last + BESIDE
        y, end = _y(cause.longest_ms), begin + len(text) * LETTER
        if begin < LEFT or any(low < end and begin < high and abs(y - at) < LABEL for low, high, at in taken):
            continue
        taken.append((begin, end, y))
        place, anchor = (first - BESIDE, "end") if is_left else (last + BESIDE, "start")
        found.append(CauseLabel(text=text, x=round(place, 2), y=y, anchor=anchor))
    return found[:MOST_LABELS]


def time_labels(begin_ms: int, end_ms: int) -> list[tuple[int, str]]:
    """Round times between the two, with their labels in UTC.

    >>> [text for _, text in time_labels(1_700_000_000_000, 1_700_010_000_000)]
    ['22:30', '23:00', '23:30', '00:00', '00:30']
    """
    days = math.ceil((end_ms - begin_ms) / DAY_MS / TIMES)
    step = next((step for step in STEPS_MS if (end_ms - begin_ms) / step <= TIMES), days * DAY_MS)
    first = -(-begin_ms // step) * step
    return [(at, _label(at, step)) for at in range(first, end_ms, step)]


def _label(at_ms: int, step_ms: int) -> str:
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    if step_ms >= DAY_MS:
        return f"{at.day} {at:%b}"
    return f"{at:%H:%M}" if step_ms >= 60_000 else f"{at:%H:%M:%S}"


def _bars(pauses_ms: Sequence[float]) -> list[tuple[float, float]]:
    """The bars of the distribution, the longest pauses on top; the widest bar has 100 percent."""
    bins = Counter(min(BINS - 1, int(share_of_decades(ms) * BINS)) for ms in pauses_ms)
    most = max(bins.values())
    height = (BOTTOM - TOP) / BINS
    return [
        (round(BOTTOM - height * (n + 1), 1), round(100 * number / most, 1))
        for n, number in sorted(bins.items(), reverse=True)
    ]


def _quantiles(texts: Sequence[tuple[str, float]]) -> list[Quantile]:
    """The pauses (longest first) with their labels, which keep a distance from each other."""
    found: list[Quantile] = []
    for text, ms in texts:
        y = _y(ms)
        label_y = max(y, found[-1].label_y + LABEL) if found else y
        found.append(Quantile(text=text, y=y, label_y=round(label_y, 1)))
    return found


def _y(pause_ms: float) -> float:
    return round(BOTTOM - (BOTTOM - TOP) * share_of_decades(pause_ms), 1)
