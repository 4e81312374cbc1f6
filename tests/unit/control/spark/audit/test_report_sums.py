"""The sums of a report, compared with those of the sessions that it counts."""

from __future__ import annotations

import random
from typing import Any

import pytest

from services.control.spark.audit.report_sums import SUMS, Numbers, Row, differences
from services.control.spark.reports.periods import RANGE

HOURS = 30


def report(seed: int, cut: int = 0) -> tuple[list[Row], dict[tuple[str, int], Numbers]]:
    """Rows of hours, days and the range, and what the sessions sum up to. `cut`: sessions of the last hour
    that the report does not count, because it ends before them.
    """
    draw = random.Random(seed)
    each = {at: tuple(draw.randrange(2, 9) for _ in SUMS) for at in range(HOURS) if draw.random() < 0.8}
    each[HOURS - 1] = (9,) * len(SUMS)
    sums: dict[str, dict[int, Numbers]] = {"hour": {}, "day": {}, RANGE: {}}
    counted: dict[tuple[str, int], Numbers] = {}
    for hour, numbers in each.items():
        less = cut if hour == HOURS - 1 else 0
        for period, start in (("hour", hour), ("day", hour // 24 * 24), (RANGE, 0)):
            before = sums[period].get(start, (0,) * len(SUMS))
            sums[period][start] = tuple(a + b - less for a, b in zip(before, numbers, strict=True))
            whole = counted.get((period, start), (0,) * len(SUMS))
            counted[period, start] = tuple(a + b for a, b in zip(whole, numbers, strict=True))
    rows = [Row(period, start, numbers) for period, found in sums.items() for start, numbers in found.items()]
    return draw.sample(rows, len(rows)), counted


def altered(rows: list[Row], **wanted: Any) -> list[Row]:
    """The rows with other sums in one of them, which has these values."""
    at = next(n for n, row in enumerate(rows) if all(getattr(row, k) == v for k, v in wanted.items()))
    sums = tuple(number * 10 for number in rows[at].sums)
    return [*rows[:at], rows[at]._replace(sums=sums), *rows[at + 1 :]]


@pytest.mark.parametrize("seed", range(20))
def test_honest_reports_do_not_differ(seed: int) -> None:
    """Whether they reach to the last session or end before it."""
    for cut in (0, 1):
        rows, counted = report(seed, cut)
        assert list(differences(rows, counted)) == []


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("period", ["hour", "day", RANGE])
def test_sums_that_are_altered_are_found(seed: int, period: str) -> None:
    """Of the first and of the last period of each kind, where the report may end before the sessions do."""
    rows, counted = report(seed, cut=1)
    starts = sorted(row.start_ms for row in rows if row.period == period)

    for start in {starts[0], starts[-1]}:
        assert list(differences(altered(rows, period=period, start_ms=start), counted)) != []


@pytest.mark.parametrize("seed", range(20))
def test_rows_that_are_removed_or_invented_are_found(seed: int) -> None:
    """An hour that has sessions has a row, and no other has one."""
    rows, counted = report(seed)
    first = min(row.start_ms for row in rows if row.period == "hour")
    without = [row for row in rows if (row.period, row.start_ms) != ("hour", first)]
    invented = [*rows, Row("hour", HOURS * 2, (1,) * len(SUMS))]

    assert list(differences(without, counted)) != []
    assert list(differences(invented, counted)) != []
