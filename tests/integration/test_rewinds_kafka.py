"""Control reads from a real Kafka what a rewind depends on."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from aiokafka import AIOKafkaProducer

from services.control.adapters.topics.rewinds import KafkaRewinds
from shared.kafka.admin.topics import checkpoints_topic, ensure_topics, sessions_topic
from shared.model.head import Head
from shared.model.names import Names
from shared.model.start import Cut
from tests.integration.test_control_offsets import make_streams, write_fragments, write_head
from tests.topics import delete_below, records_of
from tests.waiting import until


@pytest.fixture
async def rewinds(kafka: str, namespace: str) -> AsyncIterator[KafkaRewinds]:
    async with KafkaRewinds(kafka, Names(namespace)) as source:
        yield source


async def test_the_facts_of_each_stream_are_read(kafka: str, namespace: str, rewinds: KafkaRewinds) -> None:
    """Bounds, the first record of a time, the head and why it cannot be read, and whether it is the same
    log."""
    names = Names(namespace)
    await make_streams(kafka, names, 3)
    await write_fragments(kafka, names, {0: 5, 1: 3})
    times = [record.timestamp for record in await records_of(kafka, names.fragments(0), at_least=5)]
    await delete_below(kafka, names.fragments(0), 1)
    mine = Head(epoch=1, seq=1, position=4, safe_offset=2, appended=times[3], oldest=2)
    await write_head(kafka, names, "default", 0, mine)
    await write_head(kafka, names, "default", 1, Head(epoch=1, seq=1, position=3, safe_offset=0, appended=1))

    async def are_visible() -> bool:
        found = await rewinds.facts("default", {0: None, 1: 7}, times[2])
        return all(one.head is not None for one in found.values())

    await until(are_visible)
    found = await rewinds.facts("default", {0: None, 1: 7}, times[2])
    later = await rewinds.facts("default", {2: None}, times[4] + 3_600_000)

    assert (found[0].first, found[0].end, found[0].head, found[0].log) == (1, 5, mine, "same")
    assert times.index(times[2]) <= (found[0].at or 0) <= 2
    # the record before its position was not appended at 1 ms, and nothing in it is that old
    assert (found[1].before, found[1].log) == (7, "anew")
    assert (later[2].first, later[2].end, later[2].at, later[2].head) == (0, 0, None, None)
    # of stream 1 retention has taken the record before the start, stream 2 starts at 0
    await delete_below(kafka, names.fragments(1), 2)
    assert await rewinds.appended({0: 3, 1: 2, 2: 0}) == {0: times[2]}


async def test_a_head_that_kafka_has_forgotten_is_not_taken_for_none(
    kafka: str, namespace: str, rewinds: KafkaRewinds
) -> None:
    """The group has checkpoints, so it has committed; one without any begins the log with that number."""
    names = Names(namespace)
    await make_streams(kafka, names, 3)
    before = await rewinds.facts("default", {0: None}, None)
    await ensure_topics(kafka, [checkpoints_topic(names, "default", 3)], 1)
    async with AIOKafkaProducer(bootstrap_servers=kafka) as producer:
        for stream in (0, 1):
            await producer.send_and_wait(names.checkpoints("default"), b"x", partition=stream)
    await delete_below(kafka, names.checkpoints("default"), 1, partition=1)

    found = await rewinds.facts("default", dict.fromkeys(range(3)), None)

    assert (before[0].unreadable, before[0].number) == ("", 0)
    assert ["forgotten" in found[n].unreadable for n in range(3)] == [True, False, False]
    assert [found[n].log_number for n in range(3)] == [0, 1, 0]


async def test_sessions_count_as_gone_only_if_they_may_reach_the_start(
    kafka: str, namespace: str, rewinds: KafkaRewinds
) -> None:
    """Retention took those of the stream that closed before its first one that is left."""
    names = Names(namespace)
    await make_streams(kafka, names, 3)
    cut = Cut("default", 5)
    assert await rewinds.is_unused("default")
    assert await rewinds.has_sessions_since(cut, 0, 0)
    await ensure_topics(kafka, [sessions_topic(names, "default", 1, -1)], 1)
    await write_fragments(kafka, names, {0: 1, 1: 1, 2: 1})
    times = [(await records_of(kafka, names.fragments(n), at_least=1))[0].timestamp for n in range(2)]
    async with AIOKafkaProducer(bootstrap_servers=kafka) as producer:
        for stream, closed_at in ((0, 0), (7, 0), (0, times[0]), (1, times[1] - 1)):
            value = b'{"stream":%d,"closed_at":%d}' % (stream, closed_at)
            await producer.send_and_wait(names.sessions("default"), value)

    whole = [await rewinds.has_sessions_since(cut, stream, 0) for stream in range(3)]
    await delete_below(kafka, names.sessions("default"), 1)
    left = [await rewinds.has_sessions_since(cut, stream, 0) for stream in range(3)]

    assert whole == [True, True, True]
    # of stream 0 the first that is left closed when the record was appended, of stream 2 none is left, but
    # none can reach the end of its log
    assert left == [False, True, False]
    assert await rewinds.has_sessions_since(cut, 2, 1)
    assert not await rewinds.is_unused("default")
