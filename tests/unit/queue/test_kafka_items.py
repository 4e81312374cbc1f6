"""The items of a queue on Kafka, where no broker is needed."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from services.queue.kafka.items import KafkaItemLog
from shared.errors import KafkaUnavailable
from shared.kafka.connect.cluster import Cluster
from shared.kafka.read.fetcher import Fetcher
from shared.kafka.read.reading import Reading
from tests.fakes.kafka import FakeKafka
from tests.fakes.virtual_time import virtual_time


class OneReading:
    """A fetcher of one partition, which fetches nothing."""

    is_committed = True

    def __init__(self) -> None:
        self.reading = Reading("queue.q", 0, 0, lambda _: None)

    def read(self, topic: str, partition: int, offset: int) -> Reading:
        return self.reading


class NoCluster:
    """Brokers that nothing is known of."""

    def topic_id(self, topic: str) -> None:
        return None


@virtual_time
async def test_items_are_read_again_after_a_refusal() -> None:
    """A right was missing, and is granted: without a seek the reading would fail for ever."""
    nothing: Any = NoCluster()
    fetcher: Any = OneReading()
    log = KafkaItemLog(nothing, fetcher, nothing, topic="queue.q", group="g", partitions=1)
    first = asyncio.create_task(log.run(lambda: None))
    await asyncio.sleep(1)
    fetcher.reading.fail("a right is missing")
    await asyncio.wait({first}, timeout=10)
    again = asyncio.create_task(log.run(lambda: None))
    await asyncio.wait({again}, timeout=10)

    assert first.done()
    assert isinstance(first.exception(), KafkaUnavailable)
    assert not again.done()
    again.cancel()


@pytest.mark.parametrize("turns", range(5))
@virtual_time
async def test_a_queue_can_be_closed_while_a_reading_fails(turns: int) -> None:
    """In the same turn of the loop or some turns later: whoever reads again after a failure must end."""
    nothing: Any = NoCluster()
    fetcher: Any = OneReading()
    log = KafkaItemLog(nothing, fetcher, nothing, topic="queue.q", group="g", partitions=1)

    async def read_again_and_again() -> None:
        while True:
            with contextlib.suppress(KafkaUnavailable):
                await log.run(lambda: None)

    reading = asyncio.create_task(read_again_and_again())
    await asyncio.sleep(1)
    fetcher.reading.fail("a right is missing")
    for _ in range(turns):
        await asyncio.sleep(0)
    reading.cancel()
    await asyncio.wait({reading}, timeout=10)

    assert reading.cancelled()


@virtual_time
async def test_another_topic_of_the_same_name_gives_nothing_until_the_queue_is_sought_back() -> None:
    """It is as long as the one before, so its offsets show nothing: its id does."""
    kafka = FakeKafka()
    nothing: Any = None
    kafka.create("queue.q").append(*[b"old"] * 5)
    async with Cluster("fake:1", kafka.connect) as cluster:
        fetcher = Fetcher(cluster)
        log = KafkaItemLog(cluster, fetcher, nothing, topic="queue.q", group="g", partitions=1)
        await log.check([3])
        await log.check([4])
        found = [log.fault]
        kafka.create("queue.q").append(*[b"new"] * 9)
        await cluster.refresh({"queue.q"})
        log.follow([4])
        for _ in range(2):
            await log.check([4])
            found.append(log.fault)
        log.follow([0])
        await log.check([0])
        found.append(log.fault)
        await log.check([2])
        found.append(log.fault)
        log.close()
        await fetcher.close()

    other = (
        "the topic queue.q was made anew or shortened (it is another topic of the same name): "
        "seek the queue back"
    )
    assert found == ["", other, other, "", ""]
