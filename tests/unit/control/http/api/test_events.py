"""`GET /events`: the list, and the events as they happen, resumed after the last one that a client saw."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from services.control.core.events.recent_events import EventFilter, RecentEvents
from services.control.http.api import events as event_routes
from services.control.http.api.events import EVENT_STREAM, events_routes
from services.control.live.feed import feed
from services.control.live.feed.feed import EventFeed
from shared.model.events import Event, encode_event
from shared.service.http import install_problems


def record(n: int, **fields: Any) -> tuple[int, bytes]:
    """The record with offset n: an event of the member m<n>."""
    event = Event(at=n, group="default", kind="claim", member=f"m{n}", stream=n % 4, epoch=1, **fields)
    return n, encode_event(event)


@dataclass
class Listener:
    """The route over a feed that keeps ten events, and a client."""

    feed: EventFeed
    http: httpx.AsyncClient

    def receive(self, *numbers: int) -> None:
        """The feed receives these events."""
        self.feed.receive(record(n) for n in numbers)

    async def following(self, last: int | None = None, **query: str | int) -> asyncio.Task[str]:
        """Starts to follow; the task returns the response's text, which ends when the feed closes."""
        headers = {"accept": EVENT_STREAM} | ({} if last is None else {"last-event-id": str(last)})
        before = len(self.feed.followers)
        response = asyncio.create_task(self._text(headers, query))
        async with asyncio.timeout(5):
            while len(self.feed.followers) == before and not response.done():  # noqa: ASYNC110
                await asyncio.sleep(0)
        return response

    async def _text(self, headers: dict[str, str], query: dict[str, str | int]) -> str:
        response = await self.http.get("/events", params=query, headers=headers)
        assert response.headers["content-type"].startswith(EVENT_STREAM)
        return response.text


def ids_in(text: str) -> list[int]:
    """The ids of the events in a response of server-sent events."""
    blocks = [block.split("\n") for block in text.split("\n\n")]
    return [int(lines[0].removeprefix("id: ")) for lines in blocks if len(lines) == 2]


def feed_of(count: int, **fields: Any) -> EventFeed:
    """A current feed that has received this many events."""
    events = EventFeed(**fields)
    events.begin(0)
    events.receive(record(n) for n in range(count))
    events.mark_current()
    return events


def app_of(events: EventFeed) -> FastAPI:
    """An app with the events' routes only."""
    app = FastAPI()
    install_problems(app)
    app.include_router(events_routes(events, lambda _: None))
    return app


@pytest.fixture
async def listener() -> AsyncIterator[Listener]:
    events = feed_of(0, recent_events=RecentEvents(kept=10), heartbeat_s=60)
    transport = httpx.ASGITransport(app_of(events))
    async with httpx.AsyncClient(transport=transport, base_url="http://control") as http:
        yield Listener(events, http)


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ("limit=3", [6, 7, 8]),
        ("after=1&limit=3", [2, 3, 4]),
        ("after=8", []),
        ("before=5&limit=3", [2, 3, 4]),
        ("before=0", []),
        ("stream=2", [2, 6]),
        ("member=m2", [2, 8]),
        ("group=g", [8]),
        ("kind=leave&kind=join", [8]),
    ],
)
async def test_the_list_pages_and_filters(listener: Listener, query: str, ids: list[int]) -> None:
    """Without `after` or `before` it holds the newest events; filters narrow it."""
    listener.receive(*range(8))
    listener.feed.receive([(8, encode_event(Event(at=8, group="g", kind="leave", member="m2")))])

    listed = (await listener.http.get(f"/events?{query}")).json()["events"]

    assert [event["id"] for event in listed] == ids


@pytest.mark.parametrize("accept", ["application/json", EVENT_STREAM])
async def test_before_the_topic_was_read_the_answer_is_503(accept: str) -> None:
    """A list that is short because control has just started would mislead."""
    transport = httpx.ASGITransport(app_of(EventFeed()))
    async with httpx.AsyncClient(transport=transport, base_url="http://control") as http:
        response = await http.get("/events", headers={"accept": accept})

    assert (response.status_code, response.json()["type"]) == (503, "urn:baton:kafka-unavailable")
    assert response.headers["retry-after"] == "1"


async def test_a_follower_gets_the_newest_events_and_then_each_new_one(listener: Listener) -> None:
    """In order, each with its id, until control stops."""
    listener.receive(0, 1, 2)
    following = await listener.following(limit=2)

    listener.receive(3)
    await asyncio.sleep(0)
    listener.receive(4, 5)
    listener.feed.close()
    text = await following

    assert text.startswith("retry: 1000\n\nid: 1\ndata: {")
    assert ids_in(text) == [1, 2, 3, 4, 5]
    assert len(listener.feed.followers) == 0


@pytest.mark.parametrize("last", range(-1, 8))
async def test_a_follower_resumes_without_gap_or_repeat(listener: Listener, last: int) -> None:
    """After any id, it gets the events from before and after it reconnected."""
    listener.receive(*range(5))
    if last > 4:
        listener.receive(*range(5, last + 1))
    following = await (listener.following(last) if last >= 0 else listener.following(after=-1))

    listener.receive(*range(max(5, last + 1), 9))
    await asyncio.sleep(0)
    listener.feed.close()

    assert ids_in(await following) == list(range(last + 1, 9))


@pytest.mark.parametrize("seen", ["", "x", "-1", "9" * 5000, "٣"])
async def test_a_malformed_last_event_id_counts_as_none(listener: Listener, seen: str) -> None:
    """Control never sent such an id, so the query decides where the client starts."""
    listener.receive(*range(5))
    listener.feed.close()
    headers = [(b"accept", EVENT_STREAM.encode()), (b"last-event-id", seen.encode())]

    response = await listener.http.get("/events?after=2", headers=headers)

    assert ids_in(response.text) == [3, 4]


async def test_a_follower_that_returns_too_late_learns_of_the_gap(listener: Listener) -> None:
    """It gets a comment, and then the events from the oldest one that is kept."""
    listener.receive(*range(30))
    following = await listener.following(4)
    listener.feed.close()
    text = await following
    in_time = await (await listener.following(19))

    assert ": events after 4 are gone; continuing at 20\n" in text
    assert "\n: " not in in_time
    assert ids_in(text) == ids_in(in_time) == list(range(20, 30))


async def test_a_follower_that_is_too_slow_is_cut_off() -> None:
    """Its response ends once its next event has left the ring, so its backlog is bounded."""
    events = feed_of(1, recent_events=RecentEvents(kept=10))
    slow = events.follow(-1, 100, EventFilter(), "ann")
    got = [await anext(slow), await anext(slow)]

    events.receive(record(n) for n in range(1, 40))
    rest = [chunk async for chunk in slow]

    assert ids_in(got[1].decode()) == [0]
    assert rest == []
    assert len(events.followers) == 0


async def test_a_burst_of_events_is_sent_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks are bounded, and no event between them is lost."""
    monkeypatch.setattr(feed, "CHUNK", 3)
    events = feed_of(8)
    chunks = events.follow(-1, 100, EventFilter(), "ann")

    found = [ids_in((await anext(chunks)).decode()) for _ in range(4)]

    assert found == [[], [0, 1, 2], [3, 4, 5], [6, 7]]
    await chunks.aclose()


async def test_silence_is_filled_with_heartbeats() -> None:
    """They carry the id that was reached, so a client with a narrow filter can still resume."""
    events = feed_of(8, heartbeat_s=0.01)
    chunks = events.follow(None, 1, EventFilter(stream=2), "ann")

    found = [await anext(chunks) for _ in range(3)]

    assert ids_in(found[1].decode()) == [6]
    assert found[1].endswith(b"\n\nid: 7\n\n")
    assert found[2] == b"id: 7\n\n"
    await chunks.aclose()


async def test_followers_are_bounded(listener: Listener) -> None:
    """Beyond the limit, a client is asked to come back later."""
    listener.feed.followers.most = 1
    following = await listener.following()

    refused = await listener.http.get("/events", headers={"accept": EVENT_STREAM})
    listener.feed.close()
    await following

    assert (refused.status_code, refused.json()["type"]) == (503, "urn:baton:too-many-followers")


async def test_a_follower_that_has_lost_its_seat_ends() -> None:
    """Another caller has it now; the client comes back, and is told that there is no room."""
    events = feed_of(0, heartbeat_s=3600)
    events.followers.most = 2
    events.followers.take("ann")
    first = events.follow(-1, 100, EventFilter(), "ann")
    await anext(first)

    async with asyncio.timeout(30):
        second = events.follow(-1, 100, EventFilter(), "ben")
        await anext(second)
        rest = [chunk async for chunk in first]

    assert rest == []
    with pytest.raises(feed.TooManyFollowers):
        events.follow(-1, 100, EventFilter(), "ann")
    await second.aclose()


async def test_a_follower_that_reads_nothing_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds at most one chunk, and not for long."""
    monkeypatch.setattr(event_routes, "SEND_TIMEOUT_S", 0.05)
    events = feed_of(0)
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

    assert (sent, len(events.followers)) == (3, 0)
