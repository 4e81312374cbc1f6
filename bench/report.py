"""One row of `make bench`: Baton's values, those of the baseline in the same run, and the target."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One value per round in each list; rounds of both sides alternate."""

    name: str
    unit: str
    baton: list[float]
    baseline: list[float]
    target: str


def growth_row(name: str, seconds: Sequence[float]) -> Row:
    """Runs that follow each other, each over as much new: do the last ones take longer than the first?"""
    return Row(
        name=f"{name}: the last three; baseline: runs 3 to 5",
        unit="s",
        baton=[statistics.median(seconds[-3:])],
        baseline=[statistics.median(seconds[2:5])],
        target="≤ 1.3",
    )
