"""The Kafka log keeps the guarantees of `services/consumer/ports.py`, and others that need a real broker."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from services.consumer.adapters.kafka import clients as kafka_shared
from services.consumer.adapters.kafka.log import KafkaStreamLog
from services.consumer.core.commits.checkpoint import new_stream
from services.consumer.core.commits.stream import Stream
from services.consumer.core.commits.turn import StreamLimits
from services.consumer.ports import SessionSink
from shared.kafka.admin.committed import KafkaGroup
from shared.kafka.admin.heads import StoredHeads, read_heads
from shared.kafka.connect.cluster import Cluster
from shared.model.group import DELIVERIES, Delivery, GroupSettings
from shared.model.head import Head
from shared.model.names import Names
from shared.model.start import Cut
from tests.integration.kafka_log_ground import RETENTION_MS, delivered
from tests.log_contract import LogContract, commit, fragment, opened, read_to_end
from tests.reference import Rec
from tests.topics import Append, admin_client, records_of
from tests.waiting import until


class TestKafkaLog(LogContract):
    """The contract on a real broker."""


@contextlib.asynccontextmanager
async def stream_1(kafka: str, names: Names, **settings: Any) -> AsyncIterator[tuple[Stream, SessionSink]]:
    """Stream 1 of a group with these settings, and its open sink."""
    log = KafkaStreamLog(kafka, names, "default", GroupSettings(**settings), 2)
    sink = log.sink(1)
    await sink.open()
    yield (
        Stream(
            group="default",
            stream=1,
            epoch=1,
            settings=GroupSettings(**settings),
            limits=StreamLimits(),
            checkpoint=new_stream(),
            now_s=0.0,
        ),
        sink,
    )
    await sink.close()
    await log.close()


@pytest.mark.parametrize("delivery", DELIVERIES)
async def test_every_delivery_mode_delivers_the_sessions_of_a_commit(
    kafka: str, names: Names, delivery: Delivery
) -> None:
    """Without a failure all three modes deliver each session once, with its fragments as posted."""
    values = [fragment("k", pad=5), fragment("k", end=True)]
    async with stream_1(kafka, names, delivery=delivery) as (stream, sink):
        stream.fold([Rec(n, 1_000, b"k", value) for n, value in enumerate(values)], 0.0)

        await commit(stream, sink)

    (session,) = await delivered(kafka, names, 1, 1)
    assert (session.key, session.stream, session.fragments, session.reason) == ("k", 1, 2, "end")
    assert [bytes(raw) for raw in session.data] == values


async def test_a_session_of_nearly_two_megabytes_is_delivered(kafka: str, names: Names) -> None:
    """The sessions and checkpoints topics and their producers accept records of up to 2 MB."""
    values = [fragment("k", pad=30_000, end=n == 61) for n in range(62)]
    async with stream_1(kafka, names, max_session_bytes=1_900_000) as (stream, sink):
        stream.fold([Rec(n, 1_000, b"k", value) for n, value in enumerate(values)], 0.0)

        await commit(stream, sink)

    (session,) = await delivered(kafka, names, 1, 1)
    assert session.bytes > 1_860_000


async def test_the_kafka_groups_committed_offset_is_the_safe_offset(
    kafka: str, names: Names, stream_log: KafkaStreamLog, append: Append
) -> None:
    """So every Kafka tool shows where a restart would begin."""
    await append(0, b"a", fragment("a"))
    await append(0, b"b", fragment("b", end=True))
    records = await read_to_end(stream_log.reader(0), 0)
    sink = stream_log.sink(0)
    stream = await opened(sink)
    stream.fold(records, 0.0)

    await commit(stream, sink)

    async with Cluster(kafka) as cluster:
        group = KafkaGroup(cluster, names.kafka_group("default"))

        async def read() -> Mapping[int, Head]:
            return (await read_heads(group, names, [0, 1])).all()

        # the coordinator answers a commit before its markers are written, which make the offset visible
        heads = await until(read)
    assert heads == {0: stream.head}
    assert (heads[0].safe_offset, heads[0].position) == (0, 2)
    await sink.close()


async def test_a_head_that_kafka_dropped_is_read_from_the_checkpoints(
    stream_log: KafkaStreamLog, append: Append, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka drops the committed offsets of a group that is idle for a week; the group is not a new one.

    The newest head counts, even if its commit changed nothing that a replay needs.
    """
    for key in ("a", "b", "c"):
        await append(0, key.encode(), fragment(key, end=True))
    await append(0, b"open", fragment("open"))
    records = await read_to_end(stream_log.reader(0), 0)
    sink = stream_log.sink(0)
    stream = await opened(sink)
    for record in records:
        stream.fold([record], 0.0)
        await commit(stream, sink)
    await sink.close()

    async def no_heads(*_: object) -> StoredHeads:
        return StoredHeads(heads={}, unreadable={})

    monkeypatch.setattr(kafka_shared, "read_heads", no_heads)
    successor = stream_log.sink(0)
    found = await opened(successor, epoch=2)

    assert found.head.counts.sessions == 3
    assert found.head.position >= 3
    assert found.position == found.head.safe_offset
    await successor.close()


async def test_what_a_killed_mirror_left_is_not_read(kafka: str, names: Names) -> None:
    """It copies in transactions; the records of one that was aborted come again in the next."""
    topic = names.fragments(1)
    async with AIOKafkaProducer(bootstrap_servers=kafka, transactional_id=f"copier-{topic}") as producer:
        for is_whole in (False, True):
            await producer.begin_transaction()
            await producer.send_and_wait(topic, fragment("a"), key=b"a", partition=0)
            await (producer.commit_transaction() if is_whole else producer.abort_transaction())
        await producer.begin_transaction()
        await producer.send_and_wait(topic, fragment("b"), key=b"b", partition=0)
        await producer.commit_transaction()
    log = KafkaStreamLog(kafka, names, "default", GroupSettings(), 2)
    reader = log.reader(1)

    await reader.open(0)
    found: list[bytes | None] = []
    while len(found) < 2:
        found += [record.key for record in await reader.fetch(1.0)]
    await reader.close()
    await log.close()

    assert found == [b"a", b"b"]


async def test_topics_have_the_required_settings(kafka: str, names: Names) -> None:
    """Append time on fragments, records of up to 2 MB, and checkpoints kept forever."""

    async def configs(topic: str) -> dict[str, str]:
        async with admin_client(kafka) as admin:
            (response,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
        return {entry[0]: entry[1] for entry in response.resources[0][4]}

    # a broker may hear of a topic a moment after the controller has created it
    fragments = await until(lambda: configs(names.fragments(0)))
    checkpoints = await until(lambda: configs(names.checkpoints("default")))

    assert fragments["message.timestamp.type"] == "LogAppendTime"
    assert fragments["retention.ms"] == str(RETENTION_MS)
    assert checkpoints["retention.ms"] == "-1"
    assert checkpoints["cleanup.policy"] == "delete"
    assert checkpoints["max.message.bytes"] == str(2 * 1024 * 1024)


async def test_of_many_sessions_only_the_last_are_read(
    kafka: str, names: Names, stream_log: KafkaStreamLog, append: Append
) -> None:
    """All that closed since the record before the start was appended, and not much more."""
    await append(0, b"k", b'{"key":"k"}')
    (record,) = await records_of(kafka, names.fragments(0), at_least=1)
    closed = [*[record.timestamp - 1] * 900, *[record.timestamp] * 100]
    async with AIOKafkaProducer(bootstrap_servers=kafka) as producer:
        for number, closed_at in enumerate(closed):
            value = b'{"stream":0,"closed_at":%d,"first_offset":%d}' % (closed_at, number)
            last = await producer.send(names.sessions("default"), value, partition=0)
        await last

    found = [raw async for raw in stream_log.delivered(Cut("default", 9), 0, 1)]

    offsets = [msgspec.json.decode(raw)["first_offset"] for raw in found]
    assert offsets == list(range(offsets[0], 1_000))
    assert 500 < offsets[0] <= 900
