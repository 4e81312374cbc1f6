"""Charts over periods: marks stay within the plot, and stand where their time and their value say."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from services.control.console.plots import BOTTOM, LEFT, RIGHT, SLOTS, TOP, Scale
from services.control.console.reports import report_page

HOUR_MS = 3_600_000


def a_row(hour: int, sessions: int, duration_ms: int) -> dict[str, Any]:
    """A row of a report, an hour counted from 1970."""
    start = datetime.fromtimestamp(hour * HOUR_MS / 1000, UTC).isoformat().replace("+00:00", "Z")
    ends = {"ended_end": sessions // 2, "ended_gap": sessions - sessions // 2, "ended_limit": 0}
    durations = {f"duration_ms_p{p}": duration_ms * p for p in (50, 90, 99)}
    counts = {"sessions": sessions, "fragments": sessions, "keys_new": 0, "keys_returning": 0}
    return counts | ends | durations | {"start": start}


rows = st.lists(
    st.tuples(st.integers(0, 200), st.integers(0, 10**9), st.integers(0, 10**8)),
    min_size=1,
    max_size=SLOTS,
    unique_by=lambda row: row[0],
).map(lambda found: [a_row(*one) for one in sorted(found)])


@given(rows, st.integers(0, 200))
def test_all_marks_are_within_the_plot(found: list[dict[str, Any]], made_hour: int) -> None:
    """Whatever the numbers: bars, lines and their names."""
    page = report_page({"hours": found, "items": []}, made_hour * HOUR_MS, "hour", "anywhere")
    assert page.sessions is not None
    assert page.ends is not None
    assert page.durations is not None

    for bar in [*page.sessions.bars, *page.ends.bars]:
        assert LEFT - 0.01 <= bar.x <= bar.x + bar.width <= RIGHT + 0.01
        assert TOP - 0.1 <= bar.y <= bar.y + bar.height <= BOTTOM + 0.1
    for _, _, points in page.durations.lines:
        for point in points.split():
            x, y = map(float, point.split(","))
            assert 0 <= x <= 1000
            assert TOP <= y <= BOTTOM


@given(rows)
def test_bars_stand_in_the_order_of_time_without_touching(found: list[dict[str, Any]]) -> None:
    """A period without sessions leaves its place empty."""
    page = report_page({"hours": found}, 0, "hour", "anywhere")
    assert page.sessions is not None
    bars = page.sessions.bars

    assert all(left.x + left.width < right.x + 0.001 for left, right in itertools.pairwise(bars))


@given(rows)
def test_the_parts_of_a_bar_add_up_to_its_sessions(found: list[dict[str, Any]]) -> None:
    """The ends stacked are as high as the whole, up to the drawing's precision."""
    page = report_page({"hours": found}, 0, "hour", "anywhere")
    assert page.sessions is not None
    assert page.ends is not None
    stacked: dict[float, float] = {}
    for bar in page.ends.bars:
        stacked[bar.x] = stacked.get(bar.x, 0) + bar.height

    for bar in page.sessions.bars:
        assert abs(stacked.get(bar.x, 0) - bar.height) < 0.5


@given(st.integers(0, 10**12))
def test_a_scale_has_few_round_lines_and_room_for_all(most: int) -> None:
    """At most five lines; no value exceeds the last one."""
    scale = Scale(most)

    assert 0 <= scale.share(most) <= 1
    assert len(scale.grid()) <= 5


@given(rows)
def test_names_of_lines_do_not_cover_each_other(found: list[dict[str, Any]]) -> None:
    """At least the height of a line of text apart."""
    page = report_page({"hours": found}, 0, "hour", "anywhere")
    assert page.durations is not None
    heights = [y for _, y, _ in page.durations.lines]

    assert all(low - high >= 11.9 for low, high in itertools.pairwise(heights))


def test_only_a_period_that_was_not_over_is_unfinished() -> None:
    """Judged by when the report was made, not by when it is looked at."""
    found = [a_row(hour, 5, 1) for hour in (1, 2)]
    during = report_page({"hours": found}, 2 * HOUR_MS + 1, "hour", "anywhere")
    after = report_page({"hours": found}, 3 * HOUR_MS, "hour", "anywhere")

    assert [line.is_unfinished for line in during.lines] == [True, False]
    assert [line.is_unfinished for line in after.lines] == [False, False]


def test_a_day_with_a_change_of_clocks_keeps_its_place() -> None:
    """Days of 23 and 25 hours stand side by side with the others."""
    starts = ["2026-03-28T00:00:00+01:00", "2026-03-29T00:00:00+01:00", "2026-03-30T00:00:00+02:00"]
    found = [a_row(1, 5, 1) | {"start": start} for start in starts]
    page = report_page({"days": found}, 0, "day", "anywhere")
    assert page.sessions is not None

    assert len({bar.x for bar in page.sessions.bars}) == 3
    assert [label for _, label in page.sessions.times] == ["28 Mar", "29 Mar", "30 Mar"]


def test_an_empty_report_has_no_charts() -> None:
    """Unknown is empty, never 0."""
    page = report_page({"hours": [], "items": []}, 0, "hour", "anywhere")

    assert (page.sessions, page.durations, page.ends, page.lines) == (None, None, None, [])
