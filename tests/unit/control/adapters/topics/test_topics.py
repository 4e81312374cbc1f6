"""What control reads from Kafka, on brokers in memory: offsets, heads and events, through outages."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from services.control.adapters.topics import events as kafka_events
from services.control.adapters.topics import offsets as kafka_offsets
from services.control.adapters.topics.events import KafkaEvents
from services.control.adapters.topics.offsets import READS_PER_FIRST, KafkaOffsets
from services.control.core.events.recent_events import EventFilter
from services.control.live.feed.feed import EventFeed
from shared.errors import KafkaUnavailable
from shared.kafka.admin import topics
from shared.kafka.connect.cluster import Cluster
from shared.model.events import encode_event
from shared.model.head import Head
from shared.model.names import Names
from tests.event_sink_contract import numbered
from tests.fakes.kafka_admin import AdministeredKafka
from tests.fakes.virtual_time import virtual_time

NAMES = Names()
HEAD = Head(epoch=1, seq=2, position=5, safe_offset=3)


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> AdministeredKafka:
    """Brokers with two streams of seven and no records."""
    kafka = AdministeredKafka()
    kafka.create(NAMES.fragments(0)).append(*[b"v"] * 7)
    kafka.create(NAMES.fragments(1))
    for module in (kafka_offsets, kafka_events, topics):
        monkeypatch.setattr(module, "Cluster", lambda _: Cluster("fake:1", kafka.connect))
    return kafka


@virtual_time
async def test_an_unreadable_head_hides_no_other(
    kafka: AdministeredKafka, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged; its stream has no position."""
    for stream, stored in enumerate([(3, HEAD.metadata()), (1, "not a head")]):
        kafka.committed[NAMES.kafka_group("default"), (NAMES.fragments(stream), 0)] = stored
    async with KafkaOffsets("kafka", NAMES) as source:
        offsets = await source.read(2, ["default", "other"])

    assert offsets.heads == {"default": {0: HEAD}, "other": {}}
    assert (offsets.first, offsets.end) == ({0: 0, 1: 0}, {0: 7, 1: 0})
    assert [record.message for record in caplog.records] == ["heads are unreadable"]


@virtual_time
async def test_first_offsets_are_read_rarely(kafka: AdministeredKafka) -> None:
    """Only retention moves them."""
    async with KafkaOffsets("kafka", NAMES) as source:
        await source.read(2, [])
        kafka.partitions[NAMES.fragments(0), 0].start = 4
        firsts = [(await source.read(2, [])).first[0] for _ in range(READS_PER_FIRST)]

    assert firsts == [0] * (READS_PER_FIRST - 1) + [4]


@virtual_time
async def test_a_log_without_a_leader_hides_no_other(kafka: AdministeredKafka) -> None:
    """Nobody waits for it; its end is unknown until it has a leader again."""
    async with KafkaOffsets("kafka", NAMES) as source:
        kafka.partitions[NAMES.fragments(1), 0].leader = -1
        away = await source.read(2, [])
        kafka.partitions[NAMES.fragments(1), 0].leader = 1
        back = await source.read(2, [])

    assert (away.first, away.end) == ({0: 0}, {0: 7})
    assert (back.first, back.end) == ({0: 0, 1: 0}, {0: 7, 1: 0})


@virtual_time
async def test_an_outage_fails_the_readings_until_it_ends(kafka: AdministeredKafka) -> None:
    """Whether the broker is gone or mute."""
    async with KafkaOffsets("kafka", NAMES) as source:
        await source.read(2, ["default"])
        for is_mute in (False, True):
            kafka.is_mute, kafka.brokers = is_mute, [1] if is_mute else []
            kafka.cut(1)
            with pytest.raises(KafkaUnavailable):
                await source.read(2, ["default"])
            kafka.is_mute, kafka.brokers = False, [1]
            kafka.wake()
            assert (await source.read(2, ["default"])).end == {0: 7, 1: 0}


@contextlib.asynccontextmanager
async def feeding() -> AsyncIterator[EventFeed]:
    """A feed that reads the topic during the block; it creates the topic."""
    feed = EventFeed(clock=asyncio.get_running_loop().time)
    reading = asyncio.create_task(KafkaEvents("kafka", NAMES, feed, replication=1).run())
    try:
        yield feed
    finally:
        reading.cancel()
        await asyncio.wait((reading,))


def write(kafka: AdministeredKafka, *streams: int) -> None:
    """Appends an event of each stream."""
    for stream in streams:
        kafka.partitions[NAMES.events, 0].append(encode_event(numbered(stream)))
    kafka.wake()


def streams_in(feed: EventFeed) -> list[int | None]:
    return [stored.event.stream for stored in feed.recent_events.newest(99, EventFilter())]


@virtual_time
async def test_events_are_read_from_a_topic_that_control_creates(kafka: AdministeredKafka) -> None:
    """From its beginning, through an outage, and each once."""
    async with feeding() as feed:
        await asyncio.sleep(1)
        feed.require_read()
        write(kafka, 0, 1)
        await asyncio.sleep(1)
        kafka.brokers = []
        kafka.cut(1)
        await asyncio.sleep(30)
        kafka.brokers = [1]
        write(kafka, 2)
        await asyncio.sleep(30)

    assert streams_in(feed) == [0, 1, 2]
    assert kafka.settings[NAMES.events]["cleanup.policy"] == "delete"


@virtual_time
async def test_a_topic_that_was_made_anew_is_a_new_history(kafka: AdministeredKafka) -> None:
    """Its offsets begin again, so the ids do."""
    async with feeding() as feed:
        await asyncio.sleep(1)
        write(kafka, 0, 1, 2)
        await asyncio.sleep(1)
        del kafka.partitions[NAMES.events, 0]
        await asyncio.sleep(60)
        write(kafka, 7)
        await asyncio.sleep(10)

    assert streams_in(feed) == [7]
    assert [stored.id for stored in feed.recent_events.newest(99, EventFilter())] == [0]
