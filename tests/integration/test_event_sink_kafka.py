"""The event sink on a real Kafka: the contract, and a broker that goes away."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from services.consumer.adapters.kafka import events as kafka_events
from services.consumer.adapters.kafka.events import KafkaEventSink
from shared.kafka.topics import ensure_topics, events_topic
from shared.model.events import Event, parse_event
from shared.model.names import Names
from tests.event_sink_contract import EventSinkContract, EventSinkWorld, numbered
from tests.servers import KafkaServer


async def events_of(kafka: str, names: Names, count: int) -> list[Event]:
    """The events of the topic, once there are at least so many."""
    consumer = AIOKafkaConsumer(bootstrap_servers=kafka, group_id=None)
    partition = TopicPartition(names.events, 0)
    await consumer.start()
    try:
        consumer.assign([partition])
        consumer.seek(partition, 0)
        found: list[Event] = []
        async with asyncio.timeout(30):
            while len(found) < count:
                records = await consumer.getmany(timeout_ms=200)
                found += [parse_event(record.value) for record in records.get(partition, [])]
        return found
    finally:
        await consumer.stop()


@contextlib.asynccontextmanager
async def running(event_sink: KafkaEventSink) -> AsyncIterator[None]:
    """Runs the sink's loop for as long as the block runs."""
    task = asyncio.create_task(event_sink.run(), name="events")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


async def all_written(event_sink: KafkaEventSink) -> None:
    """Waits until no event waits."""
    async with asyncio.timeout(120):
        while event_sink.waiting:  # noqa: ASYNC110  there is nothing to wait for but the number
            await asyncio.sleep(0.02)


class KafkaWorld(EventSinkWorld):
    """The topic exists from the start; the sink's loop starts when it comes back."""

    def __init__(self, kafka: str, names: Names, stack: contextlib.AsyncExitStack) -> None:
        self.event_sink: KafkaEventSink = KafkaEventSink(kafka, names, capacity=3)
        self._kafka, self._names, self._stack = kafka, names, stack

    async def come_back(self) -> None:
        await self._stack.enter_async_context(running(self.event_sink))

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
            world = KafkaWorld(kafka, names, stack)
            stack.push_async_callback(world.event_sink.close)
            yield world


async def test_events_outlive_a_broker_that_is_killed_and_one_that_is_mute(
    kafka_server: KafkaServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They wait and arrive in order; only those in flight may arrive twice."""
    monkeypatch.setattr(kafka_events, "ACK_TIMEOUT_S", 1.0)
    names = Names(namespace)
    await ensure_topics(kafka_server.address, [events_topic(names)], 1)
    event_sink = KafkaEventSink(kafka_server.address, names)
    async with running(event_sink):
        event_sink.emit(numbered(0))
        await all_written(event_sink)

        kafka_server.kill()
        event_sink.emit(numbered(1))
        event_sink.emit(numbered(2))
        await asyncio.to_thread(kafka_server.start)
        await all_written(event_sink)
        kafka_server.pause()
        event_sink.emit(numbered(3))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.5):
                await all_written(event_sink)
        kafka_server.resume()
        await all_written(event_sink)
    await event_sink.close()

    found = await events_of(kafka_server.address, names, 4)
    assert list(dict.fromkeys(event.stream for event in found)) == [0, 1, 2, 3]


async def test_closing_writes_what_waits(kafka: str, namespace: str) -> None:
    """A member's last events matter most."""
    names = Names(namespace)
    await ensure_topics(kafka, [events_topic(names)], 1)
    event_sink = KafkaEventSink(kafka, names)

    event_sink.emit(numbered(0))
    await event_sink.close()

    assert await events_of(kafka, names, 1) == [numbered(0)]


async def test_closing_takes_no_longer_than_it_may_when_kafka_is_mute(
    kafka_server: KafkaServer, namespace: str
) -> None:
    """Events do not delay a member that leaves."""
    names = Names(namespace)
    await ensure_topics(kafka_server.address, [events_topic(names)], 1)
    event_sink = KafkaEventSink(kafka_server.address, names)
    async with running(event_sink):
        event_sink.emit(numbered(0))
        await all_written(event_sink)
        kafka_server.pause()
        event_sink.emit(numbered(1))
    begun = asyncio.get_running_loop().time()

    await event_sink.close()

    assert asyncio.get_running_loop().time() - begun < 8
    assert event_sink.waiting == 1
