"""The event sink on brokers in memory: the contract, order through outages, and its end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

import pytest

from shared.kafka.connect.cluster import Cluster
from shared.kafka.send.event_sink import ACK_TIMEOUT_S, KafkaEventSink
from shared.kafka.send.outcome import FLUSH_TIMEOUT_S
from shared.model.events import Event, parse_event
from shared.model.names import Names
from tests.event_sink_contract import EventSinkContract, EventSinkWorld, numbered
from tests.fakes.kafka_produce import ProducingKafka
from tests.fakes.virtual_time import until, virtual_time
from tests.waiting import running
from tests.waiting import until as really

NAMES = Names()
TOPIC = NAMES.events


def events_of(broker: ProducingKafka) -> list[Event]:
    return [parse_event(value) for value in broker.values(TOPIC)]


def streams_of(broker: ProducingKafka) -> list[int | None]:
    return [event.stream for event in events_of(broker)]


class KafkaWorld(EventSinkWorld):
    """The sink's loop starts when it comes back."""

    def __init__(self, broker: ProducingKafka, cluster: Cluster, stack: contextlib.AsyncExitStack) -> None:
        self.event_sink: KafkaEventSink = KafkaEventSink(cluster, NAMES, capacity=3)
        self._broker, self._stack = broker, stack

    async def come_back(self) -> None:
        await self._stack.enter_async_context(running(self.event_sink.run()))

    async def written(self, count: int) -> Sequence[Event]:
        await really(lambda: not self.event_sink.waiting)
        return events_of(self._broker)


class TestKafkaEvents(EventSinkContract):
    """The contract, with a broker in memory."""

    @pytest.fixture
    async def world(self) -> AsyncIterator[KafkaWorld]:
        broker = ProducingKafka()
        broker.create(TOPIC)
        async with contextlib.AsyncExitStack() as stack:
            cluster = await stack.enter_async_context(Cluster("fake:1", broker.connect))
            world = KafkaWorld(broker, cluster, stack)
            stack.push_async_callback(world.event_sink.close)
            yield world


@contextlib.asynccontextmanager
async def sending() -> AsyncIterator[tuple[ProducingKafka, KafkaEventSink]]:
    broker = ProducingKafka()
    broker.create(TOPIC)
    async with Cluster("fake:1", broker.connect) as cluster:
        yield broker, KafkaEventSink(cluster, NAMES)


@virtual_time
async def test_an_event_with_an_unknown_outcome_is_sent_again_in_order() -> None:
    """A reader may see it twice, but none is missing and none overtakes another."""
    async with sending() as (broker, event_sink), running(event_sink.run()):
        event_sink.emit(numbered(0))
        await until(lambda: not event_sink.waiting)
        broker.lagging.add((TOPIC, 0))
        event_sink.emit(numbered(1))
        await asyncio.sleep(0.5 * ACK_TIMEOUT_S)
        event_sink.emit(numbered(2))
        await asyncio.sleep(ACK_TIMEOUT_S)
        broker.lagging.clear()
        await until(lambda: not event_sink.waiting)

        assert streams_of(broker) == [0, 1, 1, 2]
        assert event_sink.dropped == 0


@virtual_time
async def test_events_wait_for_hours() -> None:
    """In order, while Kafka is away; sent once, as nothing has left meanwhile."""
    async with sending() as (broker, event_sink), running(event_sink.run()):
        event_sink.emit(numbered(0))
        await until(lambda: not event_sink.waiting)
        broker.brokers.clear()
        broker.cut(1)
        for stream in range(1, 100):
            event_sink.emit(numbered(stream))
            await asyncio.sleep(60)
        broker.brokers.append(1)
        await until(lambda: not event_sink.waiting)

        assert streams_of(broker) == list(range(100))


@pytest.mark.parametrize("is_running", [True, False])
@virtual_time
async def test_closing_writes_what_waits(is_running: bool) -> None:
    """A member's last events matter most; what is on its way when the loop ends is not sent again."""
    async with sending() as (broker, event_sink):
        if is_running:
            async with running(event_sink.run()):
                event_sink.emit(numbered(0))
                await asyncio.sleep(0.0015)
        else:
            event_sink.emit(numbered(0))
        event_sink.emit(numbered(1))
        await event_sink.close()

        assert streams_of(broker) == [0, 1]


@virtual_time
async def test_closing_takes_a_bounded_time() -> None:
    """Events do not delay a member that leaves."""
    async with sending() as (broker, event_sink):
        loop = asyncio.get_running_loop()
        async with running(event_sink.run()):
            event_sink.emit(numbered(0))
            await until(lambda: not event_sink.waiting)
            broker.is_mute = True
            event_sink.emit(numbered(1))
            await asyncio.sleep(0.1)
        began_s = loop.time()
        await event_sink.close()

        assert loop.time() - began_s == pytest.approx(FLUSH_TIMEOUT_S)
        assert event_sink.waiting == 1
