"""The items of a queue on Kafka, where no broker is needed."""

from __future__ import annotations

import asyncio
from typing import Any

from services.queue.kafka.items import KafkaItemLog
from shared.kafka.reading import Reading
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
    assert isinstance(first.exception(), ExceptionGroup)
    assert not again.done()
    again.cancel()
