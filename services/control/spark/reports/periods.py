"""The periods of a report: which ones a row of the state counts in, and which ones a run computes.

A period is an hour, a day, a week, or the whole `range` of the report. A run that knows what has changed
since the last one computes the range and the periods that are touched.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Sequence

import msgspec
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from services.control.spark.reports.plan import BLOCK_MS

RANGE = "range"
HOUR_MS = 3_600_000
LONGEST_MS = {"hour": 2 * HOUR_MS, "day": 48 * HOUR_MS, "week": 9 * 24 * HOUR_MS}
"""No period is longer, also where clocks are set back."""
MOST_SPANS = 50
"""Of time that Spark is asked to read; beyond that it reads all."""


class Range(msgspec.Struct, frozen=True, kw_only=True):
    """What a report covers: sessions that begin from `start_ms` on and before `end_ms` (UTC).

    `widest`: bounds around these within which there are no other sessions.
    """

    start_ms: int
    end_ms: int
    zone: str
    widest: tuple[int, int]

    def of(self, rows: DataFrame) -> DataFrame:
        """The rows whose `start` is in the range."""
        return rows.where(between(self.start_ms, self.end_ms))

    def blocks(self) -> tuple[int, int]:
        """From where to where (ms UTC) whole blocks hold what is in the range; empty if the second is less.

        >>> Range(start_ms=5, end_ms=9 * BLOCK_MS - 5, zone="UTC", widest=(5, 9 * BLOCK_MS + 5)).blocks()
        (345600000, 3110400000)
        """
        start_ms, end_ms = self.widest
        return -(-start_ms // BLOCK_MS) * BLOCK_MS, end_ms // BLOCK_MS * BLOCK_MS

    def local(self, at: Column | str) -> Column:
        """The wall clock of the zone at a time."""
        return f.from_utc_timestamp(at, self.zone)

    def in_periods(self, rows: DataFrame, periods: Sequence[str]) -> DataFrame:
        """Each row once for each period, with the columns `period` and `period_start`."""
        each = [
            f.struct(f.lit(period).alias("period"), self._start_of(period).alias("period_start"))
            for period in periods
        ]
        return rows.select("*", f.inline(f.array(*each)))

    def _start_of(self, period: str) -> Column:
        if period == RANGE:
            return f.timestamp_millis(f.lit(self.start_ms))
        local = self.local("start")
        if period == "hour":
            # in UTC, because a wall clock that is set back shows an hour twice
            past = f.make_dt_interval(f.lit(0), f.lit(0), f.minute(local), f.second(local))
            return f.col("start") - past
        return f.to_utc_timestamp(f.date_trunc(period, local), self.zone)


class Touched(msgspec.Struct, frozen=True, kw_only=True):
    """The periods within the range whose rows may differ from the published ones.

    `starts`: period and beginning (ms UTC) of each. `is_moved`: also because a key turned out to have begun
    earlier than was known, which changes the retention of each day on which it was there.
    """

    starts: frozenset[tuple[str, int]]
    is_moved: bool = False

    def has(self, period: str = "period", start: str = "period_start") -> Column:
        """Whether a row's period is one of them; the arguments are expressions of its name and beginning."""
        starts: dict[str, list[str]] = {}
        for name, at in sorted(self.starts):
            starts.setdefault(name, []).append(str(at))
        each = [
            f"{period} = '{name}' AND unix_millis({start}) IN ({', '.join(starts[name])})" for name in starts
        ]
        return f.expr(" OR ".join(each) or "false")

    def near(self, rows: DataFrame) -> DataFrame:
        """The rows that may be in one of them, by their `start`: Spark skips files without such rows."""
        spans = self.spans()
        if len(spans) > MOST_SPANS:
            return rows
        return rows.where(functools.reduce(operator.or_, itertools.starmap(between, spans), f.lit(False)))

    def spans(self) -> list[tuple[int, int]]:
        """Times (ms UTC, half-open) that cover them, without overlap.

        >>> Touched(starts=frozenset({("hour", 0), ("hour", HOUR_MS), ("day", 5 * 86_400_000)})).spans()
        [(0, 10800000), (432000000, 604800000)]
        """
        found: list[tuple[int, int]] = []
        for start, name in sorted((start, name) for name, start in self.starts):
            end = start + LONGEST_MS[name]
            if found and start <= found[-1][1]:
                found[-1] = (found[-1][0], max(end, found[-1][1]))
            else:
                found.append((start, end))
        return found


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What a run computes: the range, and of the periods within it those that are touched, or all (None)."""

    within: Range
    periods: tuple[str, ...]
    touched: Touched | None = None

    def of(self, rows: DataFrame, of_range: DataFrame | None = None) -> DataFrame:
        """Each row once for each period that is computed, with the columns `period` and `period_start`.

        `of_range`: other rows with the same sums over the range.
        """
        rows = self.within.of(rows)
        if self.touched is None and of_range is None:
            return self.within.in_periods(rows, (RANGE, *self.periods))
        ranged = self.within.in_periods(rows if of_range is None else of_range, (RANGE,))
        if self.touched is None:
            return ranged.unionAll(self.within.in_periods(rows, self.periods))
        if not self.touched.starts:
            return ranged
        near = self.within.in_periods(self.touched.near(rows), self.periods)
        return ranged.unionAll(near.where(self.touched.has()))

    def only(self, rows: DataFrame) -> DataFrame:
        """Those of the rows with a period whose period is computed."""
        named = f.col("period").isin(RANGE, *self.periods)
        if self.touched is None:
            return rows.where(named)
        return rows.where(named & ((f.col("period") == RANGE) | self.touched.has()))


def between(start_ms: int, end_ms: int) -> Column:
    """Whether a row's `start` is in these bounds (half-open)."""
    start, end = (f.timestamp_millis(f.lit(at)) for at in (start_ms, end_ms))
    return (f.col("start") >= start) & (f.col("start") < end)
