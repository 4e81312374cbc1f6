"""The first page: what is wrong, then every number with its last hour; and the page of a stream."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.control.core.history.group_history import GroupHistory, StreamHistory
from services.control.core.report.producer_rates import ProducerCounts
from services.control.http.console.drawing.log import PAST, log_drawing
from services.control.http.console.shown.overview import group_tiles, stream_tiles
from services.control.http.console.shown.scene import facts
from services.control.live.feed.feed import EventFeed
from shared.model.cluster import PauseNode
from tests.unit.control.http.console.browser import Page, browser_of, page_at
from tests.unit.control.http.console.scenes import scene_with, stream_row
from tests.unit.control.http.test_app import InMemoryRunner, app_of, app_on
from tests.unit.control.sources import Sources, small_baton

NUMBERS = {
    "Fragments in": "fragments_per_s",
    "Sessions out": "sessions_per_s",
    "Open sessions": "open_sessions",
    "Lag": "lag",
    "Longest wait": "lag_ms",
    "Unowned streams": "unowned",
    "Refused": "refused_per_s",
    "Lake behind": "lake_behind_s",
}
"""What the overview shows an hour of, by the name of its column in `GET /history`."""
HOUR: dict[str, Any] = {
    "group": "g",
    "from_": 0,
    "step_ms": 15_000,
    "refused_per_s": {"time": [0.2, 1.8], "size": [0.0, 0.2]},
    "lake_behind_s": [None, 90.0],
} | {
    name: [1, 2]
    for name in ("fragments_per_s", "sessions_per_s", "open_sessions", "lag", "lag_ms", "unowned")
}


async def page_of(path: str, sources: Sources | None = None) -> Page:
    """The page of the small Baton."""
    async with browser_of(await app_of(sources or small_baton(), InMemoryRunner())) as http:
        return await page_at(http, path)


async def test_every_number_has_its_hour() -> None:
    """Each is a column of `GET /history`, so its chart finds it; the page has them all."""
    page = await page_of("/")

    assert page.values("div", "data-series") == list(NUMBERS.values())
    assert set(NUMBERS.values()) <= set(GroupHistory.__struct_fields__)
    assert all(label in page.text for label in NUMBERS)


async def test_what_is_wrong_stands_before_every_number() -> None:
    """The group is paused: a sentence says so, and the next one what to do about it."""
    sources = small_baton()
    group = sources.cluster.cluster.groups["default"]
    paused = replace(group, view=replace(group.view, pause=PauseNode(since=1, who="ann", reason="a test")))
    sources.cluster.cluster = replace(sources.cluster.cluster, groups={"default": paused})
    app = await app_of(sources, InMemoryRunner())
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://control") as http:
        problems = (await http.get("/problems")).json()["problems"]
        page = await page_at(http, "/")

    assert problems
    places = [page.text.index(one["what"]) for one in problems]
    assert places == sorted(places)
    assert all(one["todo"].split("`")[0].strip() in page.text for one in problems)
    assert max(places) < page.text.index("The last hour")


async def test_what_a_producer_refuses_leads_to_its_hour() -> None:
    """To the number on the same page: no other one shows refusals, and raw JSON explains none."""
    sources, feed = small_baton(), EventFeed()
    view = sources.view()
    for refused in (0, 30):
        sources.now_s += 15
        at = int(sources.now_s * 1000)
        sources.producers.counts = {"p1": ProducerCounts(id="p1", at=at, refused={"overloaded": refused})}
        await view.step()
    async with browser_of(app_on(view, feed, InMemoryRunner())) as http:
        page = await page_at(http, "/")

    assert "Producer p1 refuses" in page.text
    (target,) = [link for link in page.values("a", "href") if "refused" in link]
    assert target.removeprefix("#") in page.values("div", "id")


def test_the_tiles_say_what_is_known_and_leave_out_the_rest() -> None:
    """Refusals by reason; how old the oldest session is that the lake lacks. Nothing known is no 0."""
    scene_facts = facts(scene_with([stream_row(0), stream_row(1)]))
    tiles = {one.label: one for one in group_tiles(GroupHistory(**HOUR), scene_facts)}
    unknown: dict[str, Any] = {name: [None, None] for name in ("lake_behind_s", "fragments_per_s")} | {
        "refused_per_s": {}
    }
    empty = {one.label: one for one in group_tiles(GroupHistory(**(HOUR | unknown)), scene_facts)}

    assert (tiles["Refused"].value, tiles["Refused"].range) == ("2.0", "time 1.8, size 0.2")
    assert (tiles["Lake behind"].value, tiles["Lake behind"].range) == ("90.0 s", "at most 90.0 s")
    assert tiles["Fragments in"].range == "1 to 2"
    assert (empty["Refused"].value, empty["Lake behind"].value, empty["Fragments in"].range) == ("", "", "")


@pytest.mark.parametrize(
    ("statuses", "worst"),
    [
        ((), "OK"),
        (("OK", "OK"), "OK"),
        (("WARN", "STOP", "OK"), "STOP"),
        ((None, "STOP"), "unknown"),
    ],
)
def test_the_charts_of_lag_learn_how_bad_it_is(statuses: tuple[str | None, ...], worst: str) -> None:
    """By the worst stream; live, as every fact."""
    rows = [stream_row(stream, status=status) for stream, status in enumerate(statuses)]

    assert facts(scene_with(rows))["worst"] == worst


async def test_a_stream_shows_its_facts_its_log_and_its_hour() -> None:
    """Stream 0 of the small Baton: what a new owner would read again, what waits, who has owned it."""
    page = await page_of("/console/streams/0")

    for text in (
        "a new owner without this memory would read 10 records again",
        "10 records to replay, 10 records behind the end.",
        "Owner m1 Since",
        "Lag 10 records",
        "Owners so far",
        "None since m1 took the stream.",
    ):
        assert text in page.text
    assert page.values("div", "data-series") == [one.series for one in stream_tiles(EMPTY)]
    assert {one.series for one in stream_tiles(EMPTY)} <= set(StreamHistory.__struct_fields__)


async def test_a_stream_whose_log_was_not_read_claims_nothing_of_it() -> None:
    """Neither that it is well nor a length; the sums of which it is a part are empty, too."""
    sources = small_baton()
    sources.offsets.leaderless = {0}
    page = await page_of("/console/streams/0", sources)
    ownership = await page_of("/console/ownership", sources)

    assert "No leader of its log answers, so how far it is behind is not known." in page.text
    assert "Not known: no leader of the log answers." in page.text
    assert "Lag records Behind" in page.text
    (label,) = [text for text in ownership.values("a", "aria-label") if text.startswith("Stream 0")]
    assert label == "Stream 0: owner m1, lag unknown, status unknown"


async def test_a_stream_that_fails_says_why() -> None:
    """The last error stands on its page, with how often it failed in a row, as text."""
    sources = small_baton()
    status = sources.members.statuses["default", "m1"]
    status.streams[0] = type(status.streams[0])(
        stream=0, epoch=3, state="retrying", position=95, failures=3, why="a <bad> checksum"
    )
    page = await page_of("/console/streams/0", sources)

    assert "a <bad> checksum 3 times in a row" in page.text
    assert "m1 fails on it and tries again." in page.text


async def test_a_stream_that_has_recovered_still_says_why_it_failed() -> None:
    """As long as the owner runs that saw it."""
    sources = small_baton()
    status = sources.members.statuses["default", "m1"]
    status.streams[0] = type(status.streams[0])(
        stream=0, epoch=3, state="running", position=95, last_why="a bad checksum"
    )
    page = await page_of("/console/streams/0", sources)

    assert "None now. The last one: a bad checksum" in page.text


@pytest.mark.parametrize("path", ["/", "/console/ownership", "/console/queues"])
async def test_every_text_that_should_stay_current_is_a_fact(path: str) -> None:
    """A page marks what the messages of `/live` replace; nothing replaces what they do not have."""
    page = await page_of(path)
    marked = re.findall(r'data-(?:fact|drawn-for)="([a-z_]+)"', page.html)

    assert marked
    assert set(marked) <= facts(scene_with([])).keys()


EMPTY = StreamHistory(group="g", stream=0, from_=0, step_ms=15_000, lag=[], rate=[], open_sessions=[])


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 10**9))
def test_a_log_is_drawn_in_proportion(first: int, past: int, replay: int, lag: int) -> None:
    """Its parts follow each other and fill the drawing; replay and lag are lengths on one scale. Offsets
    that are equal have one mark: a length without a part would show records that are not there.
    """
    drawn = log_drawing(first, first + past, first + past + replay, first + past + replay + lag)
    widths = {part.name: part.width for part in drawn.parts}

    for one, following in itertools.pairwise(drawn.parts):
        assert abs(one.x + one.width - following.x) <= 0.02
    assert [mark.x for mark in drawn.marks] == sorted(mark.x for mark in drawn.marks)
    assert drawn.marks[-1].offset == first + past + replay + lag
    assert len({mark.offset for mark in drawn.marks}) == len(drawn.marks)
    assert abs(sum(widths.values()) - drawn.marks[-1].x) <= 0.02
    if replay and lag:
        share = replay / (replay + lag)
        assert abs(widths.get("replay", 0) - share * (100 - PAST * bool(past))) <= 0.02
    assert set(widths) <= {name for name, n in (("past", past), ("replay", replay), ("lag", lag)) if n}


@pytest.mark.parametrize(
    ("offsets", "marks"),
    [
        ((0, 90, 90, 90), [("first", 0.0), ("safe offset, position and end", 100.0)]),
        ((7, 7, 7, 7), [("first, safe offset, position and end", 0.0)]),
        ((0, 40, 40, 90), [("first", 0.0), ("safe offset and position", PAST), ("end", 100.0)]),
        ((0, 40, 90, 90), [("first", 0.0), ("safe offset", PAST), ("position and end", 100.0)]),
        ((0, 0, 1, 1_000), [("first and safe offset", 0.0), ("end", 100.0)]),
    ],
)
def test_equal_offsets_of_a_log_have_one_mark(
    offsets: tuple[int, int, int, int], marks: list[tuple[str, float]]
) -> None:
    """A position that the mark beside it would cover is said in words."""
    drawn = log_drawing(*offsets)

    assert [(mark.name, mark.x) for mark in drawn.marks] == marks
    is_said = drawn.words.startswith(f"Position {offsets[2]}. ")
    assert is_said == ("position" not in " ".join(name for name, _ in marks))


def test_a_log_without_a_past_is_all_replay_and_lag() -> None:
    """Nothing is accounted for yet: first and safe offset are one mark."""
    drawn = log_drawing(0, 0, 50, 100)

    assert [(part.name, part.width) for part in drawn.parts] == [("replay", 50.0), ("lag", 50.0)]
    assert [(mark.name, mark.x) for mark in drawn.marks] == [
        ("first and safe offset", 0.0),
        ("position", 50.0),
        ("end", 100.0),
    ]
