"""Loading a checkpoint ends: a broker that is slow is waited for, one that makes no progress is not."""

from __future__ import annotations

import asyncio

import pytest

from services.consumer.adapters.kafka.clients import SharedClients
from services.consumer.adapters.kafka.sink import KafkaSessionSink
from services.consumer.core.commits.checkpoint_format import CheckpointRecord, CoveredWire, encode_record
from shared.errors import KafkaUnavailable
from shared.kafka.connect.cluster import Cluster
from shared.kafka.read.ranges import PATIENCE_S
from shared.model.group import GroupSettings
from shared.model.head import Head
from shared.model.names import Names
from tests.fakes.kafka import FakeKafka
from tests.fakes.virtual_time import virtual_time

HEAD = Head(epoch=1, seq=1, position=9, safe_offset=0, checkpoint_from=2, newest=5)
RECORDS = [
    encode_record(
        CheckpointRecord(head=HEAD, begins=n == 2, ends=n == 2, covered=[CoveredWire(f"k{n}", n, 0)])
    )
    for n in range(8)
]


def sink_on(kafka: FakeKafka) -> tuple[SharedClients, KafkaSessionSink]:
    names = Names()
    partition = kafka.create(names.checkpoints("default"))
    for raw in RECORDS:
        partition.append(raw)
    shared = SharedClients("fake:1", names, "default")
    shared.cluster = Cluster("fake:1", kafka.connect)
    return shared, KafkaSessionSink(shared, 0, GroupSettings(), 1)


@virtual_time
async def test_a_slow_checkpoint_is_loaded_whole() -> None:
    """While records arrive, loading may take any time."""
    kafka = FakeKafka()
    shared, sink = sink_on(kafka)
    (partition,) = kafka.partitions.values()
    partition.stable = 2
    loading = asyncio.ensure_future(sink.load(HEAD))
    for _ in range(4):
        await asyncio.sleep(PATIENCE_S - 1)
        assert not loading.done()
        partition.stable += 1
        kafka.wake()
    found = await loading

    assert list(found.covered) == ["k2", "k3", "k4", "k5"]
    await shared.close()


@virtual_time
async def test_loading_a_checkpoint_without_progress_fails() -> None:
    """If a record that the head points to never arrives, the worker starts again instead of hanging."""
    kafka = FakeKafka()
    shared, sink = sink_on(kafka)
    (partition,) = kafka.partitions.values()
    partition.stable = 4

    with pytest.raises(KafkaUnavailable, match="no record 4 to be had, of 5"):
        async with asyncio.timeout(3 * PATIENCE_S):
            await sink.load(HEAD)

    await shared.close()
