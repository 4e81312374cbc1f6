"""The measured values of a grid, as a CSV file that begins with a line about where they come from.

One row for each round of each side at each point.
"""

from __future__ import annotations

import csv
import dataclasses
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from bench.curves.plan import Point, Side, Work


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One round of one side: fragments/s, CPU of its clients in µs per fragment, and a median time in ms.

    `latency_ms` is from the arrival of a fragment to its acknowledgement or, if it is read, to its reader.
    Only at a steady rate, otherwise 0.
    """

    rate: float
    cpu_us: float
    latency_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A round of one side at a point."""

    point: Point
    side: Side
    round: int
    measured: Measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Median, minimum and maximum of several rounds."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """All samples, and `about`: machine, commit and time."""

    about: str
    samples: Sequence[Sample]

    def values(self, point: Point, side: Side, figure: str) -> list[float]:
        """A figure's values at a point, in the order of the rounds; empty if it was not measured."""
        found = [one for one in self.samples if one.point == point and one.side == side]
        return [getattr(one.measured, figure) for one in sorted(found, key=lambda one: one.round)]

    def spread(self, point: Point, side: Side, figure: str) -> Spread | None:
        """Their spread; None if it was not measured."""
        return spread_of(self.values(point, side, figure))

    def ratio(self, point: Point, figure: str) -> Spread | None:
        """Baton's value over aiokafka's, of the same round each."""
        mine, other = (self.values(point, side, figure) for side in ("baton", "aiokafka"))
        return spread_of([a / b for a, b in zip(mine, other, strict=True)])


def spread_of(values: Sequence[float]) -> Spread | None:
    """The spread of the values, if there are any."""
    if not values:
        return None
    return Spread(median=statistics.median(values), low=min(values), high=max(values))


_POINT = [field.name for field in dataclasses.fields(Point)]
_MEASURED = [field.name for field in dataclasses.fields(Measured)]


def write_results(path: Path, results: Results) -> None:
    """Writes them as CSV, with four digits; the first line is a comment that says where they come from."""
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write(f"# {results.about}\n")
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow([*_POINT, "side", "round", *_MEASURED])
        for one in results.samples:
            measured = (f"{getattr(one.measured, name):.4g}" for name in _MEASURED)
            rows.writerow([*(getattr(one.point, name) for name in _POINT), one.side, one.round, *measured])


def read_results(path: Path) -> Results:
    """What `write_results` has written."""
    about, *lines = path.read_text(encoding="utf-8").splitlines()
    samples = [_sample(row) for row in csv.DictReader(lines)]
    return Results(about=about.removeprefix("# "), samples=samples)


def _sample(row: dict[str, str]) -> Sample:
    return Sample(
        point=Point(
            brokers=int(row["brokers"]),
            topics=int(row["topics"]),
            curve=row["curve"],
            work=cast(Work, row["work"]),
            value=int(row["value"]),
        ),
        side=cast(Side, row["side"]),
        round=int(row["round"]),
        measured=Measured(**{name: float(row[name]) for name in _MEASURED}),
    )


def points_of(samples: Iterable[Sample]) -> list[Point]:
    """The points that were measured, in order."""
    return list(dict.fromkeys(one.point for one in samples))
