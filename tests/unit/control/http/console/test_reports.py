"""The view Reports: marks stand where their time and their value say, and the page leads to the tables."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from cli.commands.sql import sql
from services.control.http.console.drawing.plots import BOTTOM, LEFT, RIGHT, SLOTS, TOP, Scale
from services.control.http.console.shown.reports import report_page
from tests.tables import write_table
from tests.unit.control.http.console.browser import page_at
from tests.unit.control.http.console.runs_desk import EVIL, RunsDesk, runs_desk

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


@given(st.lists(st.integers(0, 10**11) | st.just(0), min_size=2, max_size=5).map(sorted))
def test_a_longer_session_never_stands_lower(lasted: list[int]) -> None:
    """Also one of less than a second, or of years. Powers of ten have no place for 0: it is the bottom."""
    found = [
        a_row(hour, 5, 1) | {f"duration_ms_p{p}": ms for p in (50, 90, 99)} for hour, ms in enumerate(lasted)
    ]
    drawn = report_page({"hours": found}, 0, "hour", "anywhere").durations
    assert drawn is not None
    heights = [float(point.split(",")[1]) for point in drawn.lines[0][2].split()]
    lines = {name: y for y, name in drawn.grid}

    assert heights == sorted(heights, reverse=True)
    assert ("0 s" in lines) == (lasted[0] < 1_000)
    if "0 s" in lines:
        assert {height for ms, height in zip(lasted, heights, strict=True) if ms == 0} <= {BOTTOM}
        assert all(h <= lines["1 s"] for ms, h in zip(lasted, heights, strict=True) if ms >= 1_000)
        assert lines["1 s"] < lines["0 s"] == BOTTOM


def test_a_duration_that_is_not_known_is_left_out() -> None:
    """And so is the name of a line without any."""
    found = [a_row(hour, 5, 1_000) | {"duration_ms_p99": None} for hour in (1, 2)]
    drawn = report_page({"hours": found}, 0, "hour", "anywhere").durations
    assert drawn is not None

    assert [name for name, _, _ in drawn.lines] == ["p50", "p90"]


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


@pytest.fixture
async def desk() -> AsyncIterator[RunsDesk]:
    desk = await runs_desk()
    async with desk.http:
        yield desk


def an_hour(start: str, sessions: int) -> dict[str, Any]:
    """A row of a report."""
    counts = {"sessions": sessions, "fragments": sessions * 9, "keys_new": 1, "keys_returning": 2}
    ends = {"ended_end": sessions, "ended_gap": 0, "ended_limit": 0}
    return counts | ends | {"start": start} | {f"duration_ms_p{p}": p * 1000 for p in (50, 90, 99)}


REPORT: dict[str, Any] = {
    "report": "march",
    "sessions_version": 61,
    "zone": "UTC",
    "item_paths": ["$.data.path"],
    "hours": [an_hour("1970-01-01T00:00:00Z", 700), an_hour("1970-01-01T01:00:00Z", 40)],
    "days": [an_hour("1970-01-01T00:00:00Z", 740)],
    "items": [{"item": EVIL, "count": 9}, {"item": "/", "count": 3}],
    "entries": [{"item": "/first", "count": 1}],
    "exits": [],
}


async def test_without_a_report_the_page_says_how_to_get_one(desk: RunsDesk) -> None:
    """A run that failed is no report."""
    desk.runs.add("reports", "failed")
    page = await page_at(desk.http, "/console/reports")

    assert "There is no report of this group yet." in page.text
    assert "baton run lake reports --wait" in page.text


async def test_the_newest_report_is_charts_and_a_table(desk: RunsDesk) -> None:
    """Every chart says in words what it shows; the hour that is not over is marked."""
    desk.runs.add("reports", "succeeded", REPORT, parameters={"report": "march"})
    page = await page_at(desk.http, "/console/reports")
    charts = [one["aria-label"] for one in page.elements["svg"] if one.get("class") == "plot"]

    assert charts == [
        "Sessions per hour, 2 hours: at most 700, 00:00; last 40, which is not over.",
        "How long sessions lasted, last: p50 50.0 s, p90 90.0 s, p99 99.0 s.",
        "What ended the sessions: its end fragment 100.0 %, silence 0.0 %, a limit 0.0 %.",
    ]
    assert page.values("rect", "class").count("sofar") == 1
    assert "1 Jan 01:00 so far 40 360" in page.text
    assert EVIL in page.text
    assert "alert('x')" not in page.html


async def test_a_long_item_is_cut_in_its_middle_and_shown_whole_on_demand(desk: RunsDesk) -> None:
    """Its count stands beside it; what begins and what ends a path tells it from others."""
    path = "/" + "very-long-path/" * 130 + "end"
    desk.runs.add("reports", "succeeded", REPORT | {"items": [{"item": path, "count": 10**12}]})
    page = await page_at(desk.http, "/console/reports")

    (shown,) = (text for text in page.text.split() if text.startswith("/very-long-path/"))
    assert (len(shown), shown[-4:], shown.count("…")) == (160, "/end", 1)
    assert path in page.values("code", "title")
    assert f"{shown} 1,000,000,000,000" in page.text


async def test_a_report_leads_to_its_whole_table(desk: RunsDesk, tmp_path: Path) -> None:
    """By a command that prints the rows of this report alone; and to the form that makes it again."""
    desk.runs.add("reports", "succeeded", REPORT, parameters={"report": "march", "top": 5})
    mine = {"group": "default", "report": "march", "period": "day", "start": 7}
    others = [mine | {name: "other"} for name in ("group", "report", "period")]
    write_table(tmp_path, "reports/periods", pa.Table.from_pylist([mine, *others]))
    page = await page_at(desk.http, "/console/reports?period=day")
    (command,) = re.findall(r"baton sql '.*' --limit 10000 -o csv", page.text)
    printed = CliRunner().invoke(sql, [*shlex.split(command)[2:], "--lake", str(tmp_path)])
    again = next(
        httpx.URL(link) for link in page.values("a", "href") if link.startswith("/console/actions/run")
    )

    assert printed.stdout.splitlines() == ["group,report,period,start", "default,march,day,7"]
    assert (again.params["job"], again.params["p.top"]) == ("reports", "5")


async def test_items_may_be_those_of_a_place_in_the_session(desk: RunsDesk) -> None:
    """Anywhere, first or last; an empty list says so."""
    desk.runs.add("reports", "succeeded", REPORT)
    first = await page_at(desk.http, "/console/reports?items=first")
    last = await page_at(desk.http, "/console/reports?items=last")

    assert "/first" in first.text
    assert "No fragment has such an item." in last.text
    assert (await page_at(desk.http, "/console/reports?items=x")).status == 422
