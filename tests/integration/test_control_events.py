"""From a member's event to control's `GET /events`, on a real Kafka and over real HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

import httpx
import pytest
from aiokafka import AIOKafkaProducer
from fastapi import FastAPI

from cli.http.client import connect
from cli.http.sse import ServerSentEvent
from services.control.adapters.topics import events as kafka_events
from services.control.adapters.topics.events import KafkaEvents
from services.control.core.events.recent_events import EventFilter
from services.control.http.api.events import events_routes
from services.control.live.feed.feed import EventFeed
from shared.kafka.admin.topics import ensure_topics, events_topic
from shared.kafka.connect.cluster import Cluster
from shared.kafka.send import event_sink as sinks
from shared.kafka.send.event_sink import KafkaEventSink
from shared.model.names import Names
from shared.server.face import Face
from shared.server.listener import http_server
from shared.service.http import install_problems
from tests.event_sink_contract import numbered
from tests.servers import KafkaServer, free_port
from tests.topics import admin_client
from tests.waiting import running, until


@contextlib.asynccontextmanager
async def reading(kafka: str, names: Names) -> AsyncIterator[EventFeed]:
    """A feed that reads the topic during the block."""
    feed = EventFeed()
    async with running(KafkaEvents(kafka, names, feed, replication=1).run()):
        yield feed


@contextlib.asynccontextmanager
async def face_of(feed: EventFeed) -> AsyncIterator[str]:
    """The URL of the events' routes; the end of the block is an orderly stop of control."""
    app = FastAPI()
    install_problems(app)
    app.include_router(events_routes(feed, lambda _: None))
    port = free_port()
    async with http_server(Face(app), "127.0.0.1", port):
        yield f"http://127.0.0.1:{port}"
        feed.close()


async def come_to(feed: EventFeed, next_id: int) -> None:
    """Returns when the feed has received every event before that id."""
    await until(lambda: feed.recent_events.next_id == next_id and feed.stale_ms() <= 10_000)


@contextlib.asynccontextmanager
async def sending(cluster: Cluster, names: Names) -> AsyncIterator[KafkaEventSink]:
    """An event sink that runs, and is closed at the end."""
    event_sink = KafkaEventSink(cluster, names)
    async with running(event_sink.run()):
        yield event_sink
    await event_sink.close()


async def heard(url: str, last: int | None, count: int) -> list[ServerSentEvent]:
    """The first `count` events that a new follower receives."""
    found: list[ServerSentEvent] = []
    async with asyncio.timeout(30), connect(url) as control:
        listening = control.listen("/events", {}, "" if last is None else str(last))
        async for event in listening:
            found += [event] if event.data else []
            if len(found) >= count:
                break
        await listening.aclose()
    return found


async def test_events_of_members_are_listed_and_followed(kafka: str, namespace: str) -> None:
    """In order; a follower that reconnects gets what it missed, once, and ends when control stops."""
    names = Names(namespace)
    async with (
        Cluster(kafka) as cluster,
        sending(cluster, names) as event_sink,
        reading(kafka, names) as feed,
        face_of(feed) as url,
    ):
        await come_to(feed, 0)
        for stream in range(3):
            event_sink.emit(numbered(stream))
        await come_to(feed, 3)

        async with httpx.AsyncClient(base_url=url) as http:
            listed = (await http.get("/events")).json()["events"]
        first = await heard(url, None, 2)
        for stream in range(3, 6):
            event_sink.emit(numbered(stream))
        rest = await heard(url, int(first[-1].id), 4)
        await until(lambda: not feed.followers)  # the two before have been seen to leave
        to_the_end = asyncio.create_task(heard(url, 5, 1))
        await until(lambda: feed.followers)
        await event_sink.close()

    assert [(event["id"], event["stream"]) for event in listed] == [(0, 0), (1, 1), (2, 2)]
    assert [event.id for event in [*first, *rest]] == ["0", "1", "2", "3", "4", "5"]
    assert [json.loads(event.data)["stream"] for event in rest] == [2, 3, 4, 5]
    assert await to_the_end == []


async def test_events_survive_a_broker_that_is_killed_and_one_that_is_mute(
    kafka_server: KafkaServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They wait and arrive in order; only those in flight may arrive twice. Control continues to read."""
    monkeypatch.setattr(kafka_events, "POLL_S", 0.5)
    monkeypatch.setattr(sinks, "ACK_TIMEOUT_S", 1.0)
    names = Names(namespace)
    async with Cluster(kafka_server.address) as cluster, reading(kafka_server.address, names) as feed:
        await come_to(feed, 0)
        async with sending(cluster, names) as event_sink:
            event_sink.emit(numbered(0))
            await come_to(feed, 1)
            kafka_server.kill()
            event_sink.emit(numbered(1))
            event_sink.emit(numbered(2))
            await asyncio.to_thread(kafka_server.start)
            await until(lambda: streams_in(feed) == [0, 1, 2] and not event_sink.waiting)
            kafka_server.pause()
            event_sink.emit(numbered(3))
            await asyncio.sleep(4)  # how long it is mute
            is_waiting = event_sink.waiting == 1
            kafka_server.resume()
            await until(lambda: streams_in(feed) == [0, 1, 2, 3])

    assert is_waiting


def streams_in(feed: EventFeed) -> list[int | None]:
    """The streams of the events that the feed has received, in order, each once."""
    return list(dict.fromkeys(stored.event.stream for stored in feed.recent_events.newest(99, EventFilter())))


async def test_foreign_records_are_skipped_and_a_new_topic_is_a_new_history(
    kafka: str, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a foreign record nor the deletion of the topic stops control."""
    monkeypatch.setattr(kafka_events, "POLL_S", 0.5)
    names = Names(namespace)
    await ensure_topics(kafka, [events_topic(names)], 1)
    async with AIOKafkaProducer(bootstrap_servers=kafka) as producer:
        await producer.send_and_wait(names.events, b"not an event")
        await producer.send_and_wait(names.events, None, key=b"k")
    async with Cluster(kafka) as cluster, reading(kafka, names) as feed:
        async with sending(cluster, names) as event_sink:
            event_sink.emit(numbered(0))
            await come_to(feed, 3)
            before = [stored.id for stored in feed.recent_events.newest(10, EventFilter())]
        unreadable = feed.recent_events.unreadable

        async with admin_client(kafka) as admin:
            await admin.delete_topics([names.events])
        await come_to(feed, 0)

    assert (before, unreadable) == ([2], 2)
    assert feed.recent_events.newest(10, EventFilter()) == []
