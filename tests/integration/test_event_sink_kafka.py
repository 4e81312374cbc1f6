"""The event sink on a real Kafka: its contract, and its end.

`test_control_events.py` kills and pauses the broker under it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

import pytest

from shared.kafka.admin.topics import ensure_topics, events_topic
from shared.kafka.connect.cluster import Cluster
from shared.kafka.send.event_sink import KafkaEventSink
from shared.model.events import Event, parse_event
from shared.model.names import Names
from tests.event_sink_contract import EventSinkContract, EventSinkWorld, numbered
from tests.servers import KafkaServer
from tests.topics import records_of
from tests.waiting import running, until


async def events_of(kafka: str, names: Names, count: int) -> list[Event]:
    """The events of the topic, once there are at least that many."""
    records = await records_of(kafka, names.events, at_least=count)
    return [parse_event(record.value) for record in records]


async def all_written(event_sink: KafkaEventSink) -> None:
    """Returns when no event waits."""
    await until(lambda: not event_sink.waiting)


class KafkaWorld(EventSinkWorld):
    """The topic exists from the start; the sink's loop starts when it comes back."""

    def __init__(self, kafka: str, cluster: Cluster, names: Names, stack: contextlib.AsyncExitStack) -> None:
        self.event_sink: KafkaEventSink = KafkaEventSink(cluster, names, capacity=3)
        self._kafka, self._names, self._stack = kafka, names, stack

    async def come_back(self) -> None:
        await self._stack.enter_async_context(running(self.event_sink.run()))

    async def written(self, count: int) -> Sequence[Event]:
        await all_written(self.event_sink)
        return await events_of(self._kafka, self._names, count)


class TestKafkaChronicle(EventSinkContract):
    """The contract on Kafka."""

    @pytest.fixture
    async def world(self, kafka: str, namespace: str) -> AsyncIterator[KafkaWorld]:
        names = Names(namespace)
        await ensure_topics(kafka, [events_topic(names)], 1)
        async with contextlib.AsyncExitStack() as stack:
            world = KafkaWorld(kafka, await stack.enter_async_context(Cluster(kafka)), names, stack)
            stack.push_async_callback(world.event_sink.close)
            yield world


async def test_closing_writes_what_waits(kafka: str, namespace: str) -> None:
    """A member's last events matter most."""
    names = Names(namespace)
    await ensure_topics(kafka, [events_topic(names)], 1)
    async with Cluster(kafka) as cluster:
        event_sink = KafkaEventSink(cluster, names)
        event_sink.emit(numbered(0))
        await event_sink.close()

    assert await events_of(kafka, names, 1) == [numbered(0)]


async def test_closing_takes_no_longer_than_it_may_when_kafka_is_mute(
    kafka_server: KafkaServer, namespace: str
) -> None:
    """Events do not delay a member that leaves."""
    names = Names(namespace)
    await ensure_topics(kafka_server.address, [events_topic(names)], 1)
    async with Cluster(kafka_server.address) as cluster:
        event_sink = KafkaEventSink(cluster, names)
        async with running(event_sink.run()):
            event_sink.emit(numbered(0))
            await all_written(event_sink)
            kafka_server.pause()
            event_sink.emit(numbered(1))
        begun = asyncio.get_running_loop().time()

        await event_sink.close()

    assert asyncio.get_running_loop().time() - begun < 3
    assert event_sink.waiting == 1
