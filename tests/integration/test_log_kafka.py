"""The Kafka log keeps the guarantees of `services/consumer/ports.py`, and others that need a real broker."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from aiokafka.admin import AIOKafkaAdminClient

from services.consumer.adapters.kafka import clients as kafka_shared
from services.consumer.adapters.kafka.log import KafkaStreamLog
from services.consumer.core.commits.checkpoint import new_stream
from services.consumer.core.commits.stream import Stream, StreamLimits
from services.consumer.ports import StreamLog
from shared.kafka.heads import StoredHeads, read_heads
from shared.model.group import Delivery, GroupSettings
from shared.model.names import Names
from shared.model.sessions import parse_session
from tests.integration.kafka_log_ground import RETENTION_MS, appending, delivered, log_topics
from tests.log_contract import SETTINGS, Append, LogContract, commit, fragment, opened, read_to_end
from tests.reference import Rec


@pytest.fixture
async def names(kafka: str, namespace: str) -> Names:
    return await log_topics(kafka, namespace)


@pytest.fixture
async def append(kafka: str, names: Names) -> AsyncIterator[Append]:
    async with appending(kafka, names) as append:
        yield append


class TestKafkaLog(LogContract):
    """The contract on a real broker."""

    @pytest.fixture
    async def stream_log(self, kafka: str, names: Names) -> AsyncIterator[StreamLog]:
        log = KafkaStreamLog(kafka, names, "default", SETTINGS, 2)
        yield log
        await log.close()


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once", "at_most_once"])
async def test_every_delivery_mode_delivers_the_sessions_of_a_commit(
    kafka: str, names: Names, append: Append, delivery: Delivery
) -> None:
    """Without a failure all three modes deliver each session once, with its fragments as posted."""
    log = KafkaStreamLog(kafka, names, "default", GroupSettings(delivery=delivery), 2)
    await append(1, b"k", fragment("k", pad=5))
    await append(1, b"k", fragment("k", end=True))
    records = await read_to_end(log.reader(1), 0)
    sink = log.sink(1)
    await sink.open()
    stream = _stream_1(sink_settings=GroupSettings(delivery=delivery))
    stream.fold(records, 0.0)

    await commit(stream, sink)

    (session,) = [parse_session(raw) for raw in await delivered(kafka, names, 1, 1)]
    assert (session.key, session.stream, session.fragments, session.reason) == ("k", 1, 2, "end")
    assert [bytes(raw) for raw in session.data] == [fragment("k", pad=5), fragment("k", end=True)]
    await sink.close()
    await log.close()


async def test_a_session_of_nearly_two_megabytes_is_delivered(kafka: str, names: Names) -> None:
    """The sessions and checkpoints topics and their producers accept records of up to 2 MB."""
    log = KafkaStreamLog(kafka, names, "default", GroupSettings(max_session_bytes=1_900_000), 2)
    sink = log.sink(1)
    await sink.open()
    stream = _stream_1(sink_settings=GroupSettings(max_session_bytes=1_900_000))
    values = [fragment("k", pad=30_000, end=n == 61) for n in range(62)]
    stream.fold([Rec(n, 1_000, b"k", value) for n, value in enumerate(values)], 0.0)

    await commit(stream, sink)

    (raw,) = await delivered(kafka, names, 1, 1)
    assert len(raw) > 1_860_000
    await sink.close()
    await log.close()


async def test_the_kafka_groups_committed_offset_is_the_safe_offset(
    kafka: str, names: Names, append: Append
) -> None:
    """So every Kafka tool shows where a restart would begin."""
    log = KafkaStreamLog(kafka, names, "default", SETTINGS, 2)
    await append(0, b"a", fragment("a"))
    await append(0, b"b", fragment("b", end=True))
    records = await read_to_end(log.reader(0), 0)
    sink = log.sink(0)
    stream = await opened(sink)
    stream.fold(records, 0.0)

    await commit(stream, sink)

    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    heads = (await read_heads(admin, names, "default", [0, 1])).all()
    await admin.close()
    assert heads == {0: stream.head}
    assert (heads[0].safe_offset, heads[0].position) == (0, 2)
    await sink.close()
    await log.close()


async def test_a_head_that_kafka_dropped_is_read_from_the_checkpoints(
    kafka: str, names: Names, append: Append, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka drops the committed offsets of a group that is idle for a week; the group is not a new one.

    The newest head counts, even if its commit changed nothing that a replay needs.
    """
    log = KafkaStreamLog(kafka, names, "default", SETTINGS, 2)
    for key in ("a", "b", "c"):
        await append(0, key.encode(), fragment(key, end=True))
    await append(0, b"open", fragment("open"))
    records = await read_to_end(log.reader(0), 0)
    sink = log.sink(0)
    stream = await opened(sink)
    for record in records:
        stream.fold([record], 0.0)
        await commit(stream, sink)
    await sink.close()

    async def no_heads(*_: object) -> StoredHeads:
        return StoredHeads(heads={}, unreadable={})

    monkeypatch.setattr(kafka_shared, "read_heads", no_heads)
    successor = log.sink(0)
    found = await opened(successor, epoch=2)

    assert found.head.counts.sessions == 3
    assert found.head.position >= 3
    assert found.position == found.head.safe_offset
    await successor.close()
    await log.close()


async def test_topics_have_the_required_settings(kafka: str, names: Names) -> None:
    """Append time on fragments, records of up to 2 MB, and checkpoints kept forever."""
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

    async def configs(topic: str) -> dict[str, str]:
        (response,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
        return {entry[0]: entry[1] for entry in response.resources[0][4]}

    fragments = await configs(names.fragments(0))
    checkpoints = await configs(names.checkpoints("default"))
    await admin.close()

    assert fragments["message.timestamp.type"] == "LogAppendTime"
    assert fragments["retention.ms"] == str(RETENTION_MS)
    assert checkpoints["retention.ms"] == "-1"
    assert checkpoints["cleanup.policy"] == "delete"
    assert checkpoints["max.message.bytes"] == str(2 * 1024 * 1024)


def _stream_1(sink_settings: GroupSettings) -> Stream:
    return Stream(
        group="default",
        stream=1,
        epoch=1,
        settings=sink_settings,
        limits=StreamLimits(),
        checkpoint=new_stream(),
        now_s=0.0,
    )
