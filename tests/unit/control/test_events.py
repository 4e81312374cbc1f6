"""`GET /events`: the list, and the events as they happen, resumed after the last one that was seen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from services.control.api import events as event_routes
from services.control.api.events import EVENT_STREAM, events_routes
from services.control.core.recent_events import EventFilter, RecentEvents
from services.control.live import feed
from services.control.live.feed import EventFeed
from shared.model.events import Event, encode_event
from shared.service.http import install_problems


def record(n: int, **fields: Any) -> tuple[int, bytes]:
    """The record of an event of member m<n> with offset n."""
    event = Event(at=n, group="default", kind="claim", member=f"m{n}", stream=n % 4, epoch=1, **fields)
    return n, encode_event(event)


@dataclass
class Listener:
    """The route on a feed that keeps ten events, and a client."""

    feed: EventFeed
    http: httpx.AsyncClient

    def tell(self, *numbers: int) -> None:
        """Brings these events."""
        self.feed.receive(record(n) for n in numbers)

    async def ids(self, **query: str | int) -> list[int]:
        """The ids of a list."""
        response = await self.http.get("/events", params=query)
        assert response.status_code == 200, response.text
        return [event["id"] for event in response.json()["events"]]

    async def following(self, last: int | None = None, **query: str | int) -> asyncio.Task[str]:
        """Follows, and has begun to; its result is all that came until the feed was closed."""
        headers = {"accept": EVENT_STREAM} | ({} if last is None else {"last-event-id": str(last)})
        before = self.feed.followers
        response = asyncio.create_task(self._text(headers, query))
        async with asyncio.timeout(5):
            while self.feed.followers == before and not response.done():  # noqa: ASYNC110
                await asyncio.sleep(0)
        return response

    async def _text(self, headers: dict[str, str], query: dict[str, str | int]) -> str:
        response = await self.http.get("/events", params=query, headers=headers)
        assert response.headers["content-type"].startswith(EVENT_STREAM)
        return response.text


def ids_in(text: str) -> list[int]:
    """The ids of the events in a stream of server-sent ones."""
    blocks = [block.split("\n") for block in text.split("\n\n")]
    return [int(lines[0].removeprefix("id: ")) for lines in blocks if len(lines) == 2]


def app_of(events: EventFeed) -> FastAPI:
    """Control's routes of events alone."""
    app = FastAPI()
    install_problems(app)
    app.include_router(events_routes(events))
    return app


@pytest.fixture
async def listener() -> AsyncIterator[Listener]:
    events = EventFeed(RecentEvents(kept=10), heartbeat_s=60)
    events.begin(0)
    events.mark_current()
    transport = httpx.ASGITransport(app_of(events))
    async with httpx.AsyncClient(transport=transport, base_url="http://control") as http:
        yield Listener(events, http)


async def test_the_list_holds_the_newest_and_pages_forward(listener: Listener) -> None:
    """Without `after` the newest `limit`; with it what came next."""
    listener.tell(*range(8))

    assert await listener.ids() == list(range(8))
    assert await listener.ids(limit=3) == [5, 6, 7]
    assert await listener.ids(after=1, limit=3) == [2, 3, 4]
    assert await listener.ids(after=7) == []


async def test_the_list_can_be_narrowed(listener: Listener) -> None:
    """By group, stream, kind and member."""
    listener.tell(*range(8))
    listener.feed.receive([(8, encode_event(Event(at=8, group="g", kind="leave", member="m2")))])

    assert await listener.ids(stream=2) == [2, 6]
    assert await listener.ids(member="m2") == [2, 8]
    assert await listener.ids(group="g") == [8]
    assert (await listener.http.get("/events?kind=leave&kind=join")).json()["events"][0]["id"] == 8


@pytest.mark.parametrize("query", ["kind=party", "limit=0", "after=-2", "stream=x"])
async def test_what_cannot_be_asked_is_refused(listener: Listener, query: str) -> None:
    """An unknown kind is a mistake, not an empty list."""
    assert (await listener.http.get(f"/events?{query}")).status_code == 422


@pytest.mark.parametrize("accept", ["application/json", EVENT_STREAM])
async def test_before_all_has_been_read_nothing_is_told(accept: str) -> None:
    """503: a list that is short because control has just started would mislead."""
    transport = httpx.ASGITransport(app_of(EventFeed()))
    async with httpx.AsyncClient(transport=transport, base_url="http://control") as http:
        response = await http.get("/events", headers={"accept": accept})

    assert (response.status_code, response.json()["type"]) == (503, "urn:baton:kafka-unavailable")
    assert response.headers["retry-after"] == "1"


async def test_a_follower_gets_the_newest_and_then_what_happens(listener: Listener) -> None:
    """In order, each with its id; the stream ends when control stops."""
    listener.tell(0, 1, 2)
    following = await listener.following(limit=2)

    listener.tell(3)
    await asyncio.sleep(0)
    listener.tell(4, 5)
    listener.feed.close()
    text = await following

    assert text.startswith("retry: 1000\n\nid: 1\ndata: {")
    assert ids_in(text) == [1, 2, 3, 4, 5]
    assert listener.feed.followers == 0


@pytest.mark.parametrize("last", range(-1, 8))
async def test_a_follower_resumes_without_gap_or_repeat(listener: Listener, last: int) -> None:
    """Wherever it was cut off: the events after that id, of before and after it came back."""
    listener.tell(*range(5))
    if last > 4:
        listener.tell(*range(5, last + 1))
    following = await (listener.following(last) if last >= 0 else listener.following(after=-1))

    listener.tell(*range(max(5, last + 1), 9))
    await asyncio.sleep(0)
    listener.feed.close()

    assert ids_in(await following) == list(range(last + 1, 9))


@pytest.mark.parametrize("seen", ["", "x", "-1", "9" * 5000, "٣"])
async def test_what_is_no_id_counts_as_none(listener: Listener, seen: str) -> None:
    """A header that we never gave is no reason to fail, and none to begin elsewhere."""
    listener.tell(*range(5))
    listener.feed.close()
    headers = [(b"accept", EVENT_STREAM.encode()), (b"last-event-id", seen.encode())]

    response = await listener.http.get("/events?limit=2", headers=headers)

    assert ids_in(response.text) == [3, 4]


async def test_one_that_comes_back_too_late_is_told_so(listener: Listener) -> None:
    """A comment line, and then from the oldest event that is kept."""
    listener.tell(*range(30))
    following = await listener.following(4)
    listener.feed.close()
    text = await following
    in_time = await (await listener.following(19))

    assert ": events after 4 are gone; continuing at 20\n" in text
    assert "\n: " not in in_time
    assert ids_in(text) == ids_in(in_time) == list(range(20, 30))


async def test_a_follower_that_is_too_slow_is_cut_off_and_resumes() -> None:
    """What it has not taken is bounded: past the events that are kept its stream ends."""
    events = EventFeed(RecentEvents(kept=10))
    events.mark_current()
    events.receive([record(0)])
    slow = events.follow(-1, 100, EventFilter())
    got = [await anext(slow), await anext(slow)]

    events.receive(record(n) for n in range(1, 40))
    rest = [chunk async for chunk in slow]

    assert ids_in(got[1].decode()) == [0]
    assert rest == []
    assert events.followers == 0


async def test_many_events_at_once_come_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower is sent so much at a time, and nothing is left out between."""
    monkeypatch.setattr(feed, "CHUNK", 3)
    events = EventFeed()
    events.mark_current()
    events.receive(record(n) for n in range(8))
    chunks = events.follow(-1, 100, EventFilter())

    found = [ids_in((await anext(chunks)).decode()) for _ in range(4)]

    assert found == [[], [0, 1, 2], [3, 4, 5], [6, 7]]
    await chunks.aclose()


async def test_silence_is_filled_with_signs_of_life() -> None:
    """They carry the id that was reached, so that one who wants few events can still resume."""
    events = EventFeed(heartbeat_s=0.01)
    events.mark_current()
    events.receive(record(n) for n in range(8))
    chunks = events.follow(None, 1, EventFilter(stream=2))

    found = [await anext(chunks) for _ in range(3)]

    assert ids_in(found[1].decode()) == [6]
    assert found[1].endswith(b"\n\nid: 7\n\n")
    assert found[2] == b"id: 7\n\n"
    await chunks.aclose()


async def test_followers_are_bounded(monkeypatch: pytest.MonkeyPatch, listener: Listener) -> None:
    """One too many is asked to come back later."""
    monkeypatch.setattr(feed, "MAX_FOLLOWERS", 1)
    following = await listener.following()

    refused = await listener.http.get("/events", headers={"accept": EVENT_STREAM})
    listener.feed.close()
    await following

    assert (refused.status_code, refused.json()["type"]) == (503, "urn:baton:too-many-followers")


async def test_a_follower_that_takes_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds no more than one chunk, and not for long."""
    monkeypatch.setattr(event_routes, "SEND_TIMEOUT_S", 0.05)
    events = EventFeed()
    events.mark_current()
    app, sent = app_of(events), 0

    async def send(_: Any) -> None:
        nonlocal sent
        sent += 1
        if sent == 3:
            await asyncio.Event().wait()

    async def receive() -> Any:
        return await asyncio.Event().wait()

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/events",
        "query_string": b"",
        "headers": [(b"accept", EVENT_STREAM.encode())],
        "asgi": {"spec_version": "2.3"},
    }
    async with asyncio.timeout(5):
        await app(scope, receive, send)

    assert (sent, events.followers) == (3, 0)
