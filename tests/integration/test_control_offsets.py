"""Control reads offsets and heads from a real Kafka."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.structs import OffsetAndMetadata

from services.control.adapters.topics.offsets import KafkaOffsets
from services.control.core.report.observed import Offsets
from shared.errors import KafkaUnavailable
from shared.kafka.admin.topics import ensure_topics, fragments_topics
from shared.model.head import Counts, Head
from shared.model.names import Names
from tests.topics import appending, delete_below


async def write_fragments(kafka: str, names: Names, counts: Mapping[int, int]) -> None:
    """Writes `counts[stream]` records to each stream."""
    async with appending(kafka, names) as append:
        for stream, count in counts.items():
            for n in range(count):
                await append(stream, b"k%d" % n, b'{"key":"k%d"}' % n)


async def write_head(kafka: str, names: Names, group: str, stream: int, head: Head) -> None:
    """Commits a head as an owner does."""
    partition = TopicPartition(names.fragments(stream), 0)
    async with AIOKafkaConsumer(
        bootstrap_servers=kafka, group_id=names.kafka_group(group), enable_auto_commit=False
    ) as consumer:
        consumer.assign([partition])
        await consumer.commit({partition: OffsetAndMetadata(head.safe_offset, head.metadata())})


async def make_streams(kafka: str, names: Names, count: int) -> None:
    """Creates the topics of `count` streams."""
    await ensure_topics(kafka, fragments_topics(names, count, 3_600_000), 1)


async def read_at_last(source: KafkaOffsets, count: int, groups: Sequence[str] = ("default",)) -> Offsets:
    """The first complete reading: a new broker may fail some, and new topics have no leader for a while."""
    deadline = time.monotonic() + 30
    while True:
        with contextlib.suppress(KafkaUnavailable):
            offsets = await source.read(count, groups)
            if len(offsets.first) == len(offsets.end) == count:
                return offsets
        assert time.monotonic() < deadline


async def test_ends_firsts_and_heads_are_read(kafka: str, namespace: str) -> None:
    """Every stream has an end, even an empty one, and every requested group has its heads."""
    names = Names(namespace)
    await make_streams(kafka, names, 3)
    await write_fragments(kafka, names, {0: 5, 2: 9})
    head = Head(epoch=2, seq=3, position=7, safe_offset=4, counts=Counts(fragments=7, ticks=1))
    await write_head(kafka, names, "default", 2, head)

    async with KafkaOffsets(kafka, names) as source:
        offsets = await read_at_last(source, 3, ["default", "other"])

    assert offsets.end == {0: 5, 1: 0, 2: 9}
    assert offsets.first == {0: 0, 1: 0, 2: 0}
    assert offsets.heads == {"default": {2: head}, "other": {}}


async def test_later_readings_see_new_records(kafka: str, namespace: str) -> None:
    """Clients are reused but answers are not cached. A new reader sees what retention removed."""
    names = Names(namespace)
    await make_streams(kafka, names, 2)

    async with KafkaOffsets(kafka, names) as source:
        before = await read_at_last(source, 2)
        await write_fragments(kafka, names, {1: 4})
        after = await source.read(2, ["default"])
    await delete_below(kafka, names.fragments(1), 3)
    async with KafkaOffsets(kafka, names) as source:
        cut = await read_at_last(source, 2)

    assert (before.end[1], after.end[1]) == (0, 4)
    assert cut.first == {0: 0, 1: 3}


async def test_many_streams_are_read_in_one_request_of_each_kind(kafka: str, namespace: str) -> None:
    """Ends, firsts and heads of a hundred streams take one request each, not one per stream."""
    names = Names(namespace)
    await make_streams(kafka, names, 100)

    async with KafkaOffsets(kafka, names) as source:
        await read_at_last(source, 100)
        begun = time.monotonic()
        offsets = await source.read(100, ["default"])

    assert len(offsets.end) == 100
    assert time.monotonic() - begun < 2  # a request per stream, or aiokafka's wait of 20 s, would take longer
