"""One row of `make bench`: Baton's values, those of the baseline in the same run, and the target."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One value per round in each list; rounds of both sides alternate."""

    name: str
    unit: str
    baton: list[float]
    baseline: list[float]
    target: str
