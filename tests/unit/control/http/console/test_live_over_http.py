"""`GET /live` over HTTP: a page hears of all since it was drawn, also after its connection was lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

import pytest
from fastapi import FastAPI

from services.control.live.feed.feed import EventFeed
from shared.model.events import Event, encode_event
from tests.unit.control.http.console.browser import browser_of, page_at
from tests.unit.control.http.test_app import InMemoryRunner, app_on
from tests.unit.control.sources import small_baton


class Control:
    """Control with a feed of three handovers in the group."""

    def __init__(self) -> None:
        self.feed = EventFeed()
        self.feed.begin(0)
        self.feed.mark_current()
        for _ in range(3):
            self.happen()

    def happen(self) -> None:
        """One more handover."""
        number = self.feed.recent_events.next_id
        event = Event(
            at=number, group="default", kind="handover", stream=1, epoch=number, source="m2", target="m1"
        )
        self.feed.receive([(number, encode_event(event))])

    async def app(self) -> FastAPI:
        """Its HTTP face."""
        view = small_baton().view(ownership_history=self.feed.recent_events.ownership_history)
        await view.step()
        return app_on(view, self.feed, InMemoryRunner())


async def heard(app: FastAPI, place: str, until: Callable[[str], bool], **headers: str) -> str:
    """What a page hears at this address, up to a text that it waits for; then it leaves."""
    path, query = urlsplit(place).path, urlsplit(place).query
    text, has_left = "", asyncio.Event()

    async def receive() -> MutableMapping[str, Any]:
        await has_left.wait()
        return {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        nonlocal text
        text += message.get("body", b"").decode()
        if until(text):
            has_left.set()

    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "scheme": "http",
        "query_string": query.encode(),
        "client": ("127.0.0.1", 1),
        "server": ("control", 80),
        "http_version": "1.1",
        "root_path": "",
        "asgi": {"version": "3.0"},
        "headers": [
            (b"host", b"control"),
            *((name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()),
        ],
    }
    async with asyncio.timeout(30):
        await app(scope, receive, send)
    return text


def ids(text: str) -> list[int]:
    """The ids of the messages `event`."""
    blocks = [block.split("\n") for block in text.split("\n\n")]
    return [int(lines[0].removeprefix("id: ")) for lines in blocks if "event: event" in lines]


def has_reading(text: str) -> bool:
    """Whether a reading has arrived, which follows the events that were waiting."""
    return "event: reading" in text and text.endswith("\n\n")


@pytest.mark.parametrize("path", ["/", "/console/ownership", "/console/movements", "/console/streams/1"])
async def test_a_page_hears_what_has_happened_since_it_was_drawn(path: str) -> None:
    """Its address carries the id: what happens before it connects is in neither, otherwise."""
    control = Control()
    app = await control.app()
    async with browser_of(app) as http:
        page = await page_at(http, path)
    (place,) = page.values("div", "hx-sse:connect")
    control.happen()
    control.happen()

    assert ids(await heard(app, place, has_reading)) == [3, 4]


async def test_a_page_that_comes_back_goes_on_where_it_was() -> None:
    """`Last-Event-ID` is newer than its address; a malformed one counts as none."""
    app = await Control().app()

    back = await heard(app, "/live?group=default&after=-1", has_reading, last_event_id="1")
    odd = await heard(app, "/live?group=default&after=0", has_reading, last_event_id="9" * 5000)
    new = await heard(app, "/live?group=default", has_reading)

    assert (ids(back), ids(odd), ids(new)) == ([2], [1, 2], [])
    assert "\nid: 1\n" in back
    assert "\nid: 2\nevent: reading" in back
    assert "event: gone" not in back + odd + new


async def test_a_page_goes_on_with_a_control_that_still_reads_its_events() -> None:
    """What the page has seen is not new because control has just started."""
    control = Control()
    app = await control.app()
    control.feed = EventFeed(control.feed.recent_events)
    restarted = await control.app()

    text = await heard(restarted, "/live?group=default&after=-1", has_reading, last_event_id="77")

    assert ids(text) == []
    assert "event: gone" not in text
    assert "\nid: 77\n" in text
    assert ids(await heard(app, "/live?group=default&after=-1", has_reading)) == [0, 1, 2]


async def test_a_page_that_has_missed_more_than_is_known_is_told_so() -> None:
    """It reads itself again then, and goes on with what happens next."""
    control = Control()
    app = await control.app()
    control.feed.recent_events.floor = 2

    text = await heard(app, "/live?group=default&after=0", has_reading)

    assert "id: 2\nevent: gone\n" in text
    assert ids(text) == []
