"""A new owner first settles what a broken commit has left undecided in the log.

A broker that loses touch with its controller may end a transaction without its markers (KAFKA-20734). These
tests create such leftovers with a producer whose writes the transaction coordinator does not know about.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from services.consumer.adapters.kafka.log import KafkaStreamLog
from services.consumer.adapters.kafka.sink import KafkaSessionSink
from services.consumer.core.commits.stream import Stream
from shared.model.names import Names
from tests.integration.kafka_log_ground import delivered
from tests.log_contract import commit, fragment, opened, read_to_end
from tests.logs import commit_of
from tests.servers import KafkaServer
from tests.topics import Append, admin_client


@pytest.fixture
def kafka(kafka_server: KafkaServer) -> str:
    """A broker that no other worker uses, because tests change its settings."""
    return kafka_server.address


@pytest.fixture
async def unverified(kafka: str) -> AsyncIterator[None]:
    """The broker accepts transactional records that its coordinator does not know about."""

    async def set_to(value: str) -> None:
        async with admin_client(kafka) as admin:
            for node in admin._client.cluster.brokers():
                configs = {"transaction.partition.verification.enable": value}
                broker = ConfigResource(ConfigResourceType.BROKER, str(node.nodeId), configs)
                _, answer = await admin.alter_configs([broker])
                assert answer.resources[0][0] == 0, answer

    await set_to("false")
    yield
    await set_to("true")


def leave_out(sink: KafkaSessionSink, *, partitions: bool = False, offsets: bool = False) -> None:
    """From now on, hides these writes of the sink's transactions from the coordinator.

    It then ends the transactions without them.
    """
    writer = sink._writer

    async def add_nothing(partitions: object) -> None:
        pass

    if partitions:
        writer.add = add_nothing  # type: ignore[method-assign]
    if offsets:
        writer.commit_offset = writer._commit_offset  # type: ignore[method-assign]


async def with_a_session(log: KafkaStreamLog, append: Append, key: str) -> tuple[Stream, KafkaSessionSink]:
    """A stream that has committed the session of key `a`, and holds the uncommitted one of `key`."""
    for one in ("a", key):
        await append(0, one.encode(), fragment(one, end=True))
    records = await read_to_end(log.reader(0), 0)
    sink = log.sink(0)
    assert isinstance(sink, KafkaSessionSink)
    stream = await opened(sink)
    stream.fold(records[:1], 0.0)
    await commit(stream, sink)
    await sink._checkpoints.settled(stream.head.newest + 2)
    stream.fold(records[1:], 0.0)
    return stream, sink


@pytest.mark.usefixtures("unverified")
async def test_an_undecided_commit_is_not_delivered_beside_its_replay(
    kafka: str, names: Names, stream_log: KafkaStreamLog, append: Append
) -> None:
    """Otherwise the next transaction of the producer id would commit the fenced owner's sessions, too."""
    stream, sink = await with_a_session(stream_log, append, "b")
    leave_out(sink, partitions=True)
    prepared = commit_of(stream)
    await sink._writer.write(sink._checkpoints.place, [(None, raw, []) for raw in prepared.records])
    await sink._writer.write(sink._sessions, [(key, value, []) for key, value in prepared.sessions])
    await sink.close()

    successor = stream_log.sink(0)
    again = await opened(successor, epoch=2)
    assert again.head == stream.head
    again.fold(await read_to_end(stream_log.reader(0), 1), 0.0)
    await commit(again, successor)

    found = await delivered(kafka, names, 0, 2)
    assert [(one.key, one.epoch) for one in found] == [("a", 1), ("b", 2)]
    await successor.close()


@pytest.mark.usefixtures("unverified")
@pytest.mark.parametrize("left_out", ["partitions", "offsets"])
async def test_a_partly_committed_transaction_is_completed(
    kafka: str, names: Names, stream_log: KafkaStreamLog, append: Append, left_out: str
) -> None:
    """Either the head is stored, or checkpoint and sessions are: each proves that the commit succeeded."""
    stream, sink = await with_a_session(stream_log, append, "b")
    leave_out(sink, **{left_out: True})
    await commit(stream, sink)
    await sink.close()

    successor = stream_log.sink(0)
    again = await opened(successor, epoch=2)
    await append(0, b"c", fragment("c", end=True))
    again.fold(await read_to_end(stream_log.reader(0), again.head.position), 0.0)
    await commit(again, successor)

    assert again.head.seq == 3
    found = await delivered(kafka, names, 0, 3)
    assert [(one.key, one.epoch) for one in found] == [("a", 1), ("b", 1), ("c", 2)]
    await successor.close()
