"""Rejects on brokers in memory: the contract, and that none is ever written twice."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from services.producer.kafka.rejects import RECORD_OVERHEAD_BYTES, KafkaRejects
from shared.kafka.connect.cluster import Cluster
from shared.kafka.send.outcome import FLUSH_TIMEOUT_S
from shared.model.names import Names
from shared.model.rejects import Reject, parse_reject
from tests.fakes.kafka_produce import ProducingKafka
from tests.fakes.virtual_time import until, virtual_time
from tests.rejects_contract import SHARE_BYTES, RejectsContract, RejectsWorld, refused
from tests.waiting import running
from tests.waiting import until as really

NAMES = Names()
TOPIC = NAMES.rejected
ACK_TIMEOUT_S = 5.0


class KafkaWorld(RejectsWorld):
    """The loop that writes to the topic starts with `come_back`."""

    def __init__(self, broker: ProducingKafka, cluster: Cluster, stack: contextlib.AsyncExitStack) -> None:
        self.rejects: KafkaRejects = KafkaRejects(
            cluster, NAMES, max_waiting_bytes=100_000, share_bytes=SHARE_BYTES
        )
        self._broker, self._stack = broker, stack

    async def come_back(self) -> None:
        await self._stack.enter_async_context(running(self.rejects.run()))

    async def kept(self, count: int) -> Sequence[Reject]:
        await really(lambda: self.rejects.counts.stored >= count)
        return kept_by(self._broker)


def kept_by(broker: ProducingKafka) -> list[Reject]:
    return [parse_reject(record.value, record.headers) for record in broker.records(TOPIC)]


class TestKafkaRejects(RejectsContract):
    """The contract, with a broker in memory."""

    @pytest.fixture
    async def world(self) -> AsyncIterator[KafkaWorld]:
        broker = ProducingKafka()
        broker.create(TOPIC)
        async with contextlib.AsyncExitStack() as stack:
            cluster = await stack.enter_async_context(Cluster("fake:1", broker.connect))
            yield KafkaWorld(broker, cluster, stack)


@contextlib.asynccontextmanager
async def writing(**options: Any) -> AsyncIterator[tuple[ProducingKafka, KafkaRejects]]:
    broker = ProducingKafka()
    broker.create(TOPIC)
    async with Cluster("fake:1", broker.connect) as cluster:
        rejects = KafkaRejects(cluster, NAMES, ack_timeout_s=ACK_TIMEOUT_S, **options)
        async with running(rejects.run()):
            yield broker, rejects


def indexes(broker: ProducingKafka) -> list[int]:
    return [reject.index for reject in kept_by(broker)]


@virtual_time
async def test_a_batch_with_an_unknown_outcome_is_dropped() -> None:
    """If it were written again, a replay might send its fragments twice; those that follow are stored."""
    async with writing() as (broker, rejects):
        rejects.put([refused(0)], [b"{}"])
        await until(lambda: rejects.counts.stored == 1)
        broker.lagging.add((TOPIC, 0))
        rejects.put([refused(1)], [b"{}"])
        await until(lambda: rejects.counts.dropped == 1)
        broker.lagging.clear()
        rejects.put([refused(2)], [b"{}"])
        await until(lambda: rejects.counts.stored == 2)

        assert indexes(broker) == [0, 1, 2]  # it was stored in fact


@pytest.mark.parametrize("away", ["broker", "topic"])
@virtual_time
async def test_rejects_wait_for_hours_and_are_stored_once(away: str) -> None:
    """What has never been sent is not dropped, in its order, with those that come meanwhile."""
    async with writing() as (broker, rejects):
        rejects.put([refused(0)], [b"{}"])
        await until(lambda: rejects.counts.stored == 1)
        partition = broker.partitions[TOPIC, 0]
        if away == "broker":
            broker.brokers.clear()
            broker.cut(1)
        else:
            del broker.partitions[TOPIC, 0]
        for index in range(1, 200):
            rejects.put([refused(index)], [b"{}"])
            await asyncio.sleep(20)
        asked = broker.metadata_reads
        await asyncio.sleep(100)
        reads = broker.metadata_reads - asked
        broker.brokers = [1]
        broker.partitions[TOPIC, 0] = partition
        await until(lambda: rejects.counts.stored == 200)

        assert rejects.counts.dropped == 0
        assert indexes(broker) == list(range(200))
        assert reads < 1_000


@virtual_time
async def test_rejects_that_kafka_refuses_are_dropped() -> None:
    """They would be refused again, and hold up those that follow."""
    async with writing() as (broker, rejects):
        broker.partitions[TOPIC, 0].refusals.append(10)
        rejects.put([refused(0)], [b"{}"])
        await until(lambda: rejects.counts.dropped == 1)
        rejects.put([refused(1)], [b"{}"])
        await until(lambda: rejects.counts.stored == 1)

        assert indexes(broker) == [1]


@virtual_time
async def test_the_queue_stays_bounded_however_often_it_was_tried() -> None:
    """Rejects take up their room until they are stored or dropped."""
    async with writing(max_waiting_bytes=10 * (RECORD_OVERHEAD_BYTES + 2)) as (broker, rejects):
        broker.brokers.clear()
        for index in range(10):
            rejects.put([refused(index)], [b"{}"])
        await asyncio.sleep(10.1 * ACK_TIMEOUT_S)
        for index in range(10, 20):
            rejects.put([refused(index)], [b"{}"])
        broker.brokers.append(1)
        await until(lambda: rejects.counts.stored + rejects.counts.dropped == 20)

        assert rejects.counts.dropped == 10
        assert indexes(broker) == list(range(10))
        rejects.put([refused(20)], [b"{}"])
        await until(lambda: rejects.counts.stored == 11)


@virtual_time
async def test_a_lost_answer_doubles_no_reject() -> None:
    """The broker recognizes the repetition."""
    async with writing() as (broker, rejects):
        rejects.put([refused(0)], [b"{}"])
        await until(lambda: rejects.counts.stored == 1)
        broker.lost_answers = 2
        for index in range(1, 500):
            rejects.put([refused(index)], [b"{}"])
        await until(lambda: rejects.counts.stored == 500)

        assert indexes(broker) == list(range(500))


@pytest.mark.parametrize("is_sent", [True, False])
@virtual_time
async def test_a_stop_waits_for_a_bounded_time(is_sent: bool) -> None:
    """What is not known to be stored by then counts as dropped."""
    broker = ProducingKafka()
    broker.create(TOPIC)
    loop = asyncio.get_running_loop()
    async with Cluster("fake:1", broker.connect) as cluster:
        rejects = KafkaRejects(cluster, NAMES)
        async with running(rejects.run()):
            rejects.put([refused(0)], [b"{}"])
            await until(lambda: rejects.counts.stored == 1)
            broker.is_mute = True
            if not is_sent:
                broker.brokers.clear()
                broker.cut(1)
            rejects.put([refused(1)], [b"{}"])
            began_s = loop.time()
            await rejects.flush()

            assert loop.time() - began_s == pytest.approx(FLUSH_TIMEOUT_S)
    assert (rejects.counts.stored, rejects.counts.dropped) == (1, 1)
