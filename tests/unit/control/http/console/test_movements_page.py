"""The page of movements: the filters of its address, and the links to its further pages, which keep them."""

from __future__ import annotations

import time
from collections.abc import Iterable

import httpx
import pytest

from services.control.http.console.pages.routes import PAGE
from services.control.live.feed.feed import EventFeed
from shared.model.events import Event, Kind, encode_event
from tests.unit.control.http.console.browser import Page, browser_of, page_at
from tests.unit.control.http.test_app import InMemoryRunner, app_on
from tests.unit.control.sources import small_baton

PATH = "/console/movements"
MINUTE_MS = 60_000


def move(kind: Kind, minutes_ago: int, stream: int, source: str, target: str) -> Event:
    """A stream changed its owner so long ago."""
    at = time.time_ns() // 1_000_000 - minutes_ago * MINUTE_MS
    return Event(
        at=at, group="default", kind=kind, stream=stream, epoch=at, source=source, target=target, why="a test"
    )


async def console_after(events: Iterable[Event]) -> httpx.AsyncClient:
    """The console of a control that has read these events."""
    feed, sources = EventFeed(), small_baton()
    feed.receive(enumerate(map(encode_event, events)))
    feed.mark_current()
    view = sources.view(ownership_history=feed.recent_events.ownership_history)
    await view.step()
    return browser_of(app_on(view, feed, InMemoryRunner()))


def streams_of(page: Page) -> list[int]:
    """The streams whose movements a page lists, in its order."""
    links = [link.partition("?")[0] for link in page.values("a", "href")]
    return [int(link.rpartition("/")[2]) for link in links if link.startswith("/console/streams/")]


@pytest.mark.parametrize(
    ("filters", "streams"),
    [
        ({}, [1, 2]),
        ({"since": "1 h"}, [1]),
        ({"since": "1 day"}, [1, 2, 3]),
        ({"since": "all"}, [1, 2, 3, 1]),
        ({"since": "all", "stream": "1"}, [1, 1]),
        ({"since": "all", "member": "m3"}, [3, 1]),
        ({"since": "all", "kind": "handover"}, [1, 3, 1]),
        ({"since": "all", "kind": "take-over"}, [2]),
        ({"since": "6 h", "stream": "1", "member": "m2", "kind": "handover"}, [1]),
        ({"since": "6 h", "stream": "3"}, []),
    ],
    ids=str,
)
async def test_the_address_says_which_movements_are_shown(
    filters: dict[str, str], streams: list[int]
) -> None:
    """Those that match all of it, newest first; the form shows what was chosen."""
    events = [
        move("handover", 2 * 24 * 60, 1, "m3", "m1"),
        move("handover", 12 * 60, 3, "m2", "m3"),
        move("takeover", 3 * 60, 2, "m1", "m2"),
        move("handover", 30, 1, "m1", "m2"),
    ]
    async with await console_after(events) as http:
        page = await page_at(http, f"{PATH}?{httpx.QueryParams(filters)}")

    assert streams_of(page) == streams
    assert f"{len(streams)} of {len(streams)}" in page.text or "No stream has moved" in page.text
    (since,) = [one["value"] for one in page.elements["input"] if "checked" in one]
    (stream,) = [one["value"] for one in page.elements["input"] if one.get("name") == "stream"]
    assert (since, stream) == (filters.get("since", "6 h"), filters.get("stream", ""))


async def test_further_pages_keep_the_filters() -> None:
    """From the newest movements to the older ones and back, without the ones that are left out."""
    handovers = [move("handover", 1_000 - n, n, "m1", "m2") for n in range(PAGE + 9)]
    others = [
        other
        for minutes in (100, 2_000)
        for other in (move("takeover", minutes, 777, "m1", "m2"), move("handover", minutes, 778, "m3", "m4"))
    ]
    filters = httpx.QueryParams(since="all", member="m1", kind="handover")
    async with await console_after([*handovers, *others]) as http:
        first = await page_at(http, f"{PATH}?{filters}")
        (older,) = [link for link in first.values("a", "href") if "before=" in link]
        second = await page_at(http, PATH + older)
        (newest,) = [link for link in second.values("a", "href") if link.startswith("?")]
        again = await page_at(http, PATH + newest)

    assert streams_of(first) == list(reversed(range(9, PAGE + 9)))
    assert streams_of(second) == list(reversed(range(9)))
    assert streams_of(again) == streams_of(first)
