"""Geometry of charts over periods: where a period's bar stands, and how high. Pure.

x is in percent of the drawing, y in pixels from its top. A chart shows the newest SLOTS periods at most. A
period without sessions has no row, and leaves a gap.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from services.control.http.console.words import short

Row = Mapping[str, Any]

DAY_MS: Final = 86_400_000
SLOTS: Final = 31
LEFT, RIGHT = 8.0, 93.0
TOP, BOTTOM = 10.0, 150.0
LABELS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One rectangle; `kind` is its class."""

    x: float
    y: float
    width: float
    height: float
    kind: str


class Slots:
    """The newest periods side by side; each row has its place by time."""

    def __init__(self, rows: Sequence[Row], length_ms: int, made_ms: int) -> None:
        newest = start_ms(rows[-1])
        # rounded, because a day with a change of clocks is shorter or longer
        back = [round((newest - start_ms(row)) / length_ms) for row in rows]
        shown = [(row, steps) for row, steps in zip(rows, back, strict=True) if steps < SLOTS]
        self.number = max(steps for _, steps in shown) + 1
        self.rows = [(row, self.number - 1 - steps) for row, steps in shown]
        self.unfinished = {at for row, at in self.rows if start_ms(row) + length_ms > made_ms}
        self._is_by_hour = length_ms < DAY_MS

    def __repr__(self) -> str:
        return f"<Slots: {len(self.rows)} rows in {self.number}>"

    @property
    def width(self) -> float:
        """Of a slot."""
        return (RIGHT - LEFT) / self.number

    def x(self, at: int) -> float:
        """The left edge of a slot."""
        return LEFT + self.width * at

    def times(self) -> list[tuple[float, str]]:
        """Labels below a few slots, at their middles."""
        every = max(1, math.ceil(self.number / LABELS))
        shown = [(row, at) for row, at in self.rows if (self.number - 1 - at) % every == 0]
        return [
            (rounded(self.x(at) + self.width / 2), label(row, is_by_hour=self._is_by_hour))
            for row, at in shown
        ]

    def bar(self, at: int, low: float, high: float, kind: str) -> Bar:
        """A bar between two heights of the plot, 0 … 1."""
        top, bottom = y_of(high), y_of(low)
        gap = min(0.3, self.width * 0.1)
        return Bar(
            x=rounded(self.x(at) + gap / 2),
            y=top,
            width=rounded(self.width - gap),
            height=round(bottom - top, 1),
            kind=kind,
        )


def start_ms(row: Row) -> int:
    """When the row's period begins, ms UTC."""
    return round(datetime.fromisoformat(row["start"]).timestamp() * 1000)


def label(row: Row, *, is_by_hour: bool) -> str:
    """The row's period on its zone's wall clock, short.

    >>> row = {"start": "2026-11-22T14:00:00Z"}
    >>> label(row, is_by_hour=True), label(row, is_by_hour=False)
    ('14:00', '22 Nov')
    """
    at = datetime.fromisoformat(row["start"])
    return f"{at:%H:%M}" if is_by_hour else f"{at.day} {at:%b}"


class Scale:
    """From 0 to a round number that no value exceeds."""

    def __init__(self, most: int) -> None:
        step = 10.0 ** math.floor(math.log10(max(1, most) / 2))
        self._step = next((step * n for n in (1, 2, 5, 10) if most / (step * n) <= 4), step * 10)
        self._most = self._step * max(1, math.ceil(most / self._step))

    def __repr__(self) -> str:
        return f"<Scale to {self._most:g}>"

    def share(self, value: float) -> float:
        """Where the value lies, 0 … 1."""
        return value / self._most

    def grid(self) -> list[tuple[float, str]]:
        """The lines, without that of 0."""
        numbers = [self._step * n for n in range(1, round(self._most / self._step) + 1)]
        return [(y_of(self.share(number)), short(round(number))) for number in numbers if number >= 1]


def y_of(share: float) -> float:
    """The height of a share of the plot, 0 at its bottom and 1 at its top."""
    return round(BOTTOM - (BOTTOM - TOP) * share, 1)


def rounded(x: float) -> float:
    """As precise as a screen shows it."""
    return round(x, 3)
