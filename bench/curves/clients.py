"""The clients under measurement: Baton's sender and fetcher, and aiokafka's producer and consumer.

Both write idempotently with acks=all, an acknowledgement awaited for each request, and read without a group,
with checksums checked. The bounds of batches and fetches are the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from bench.curves.plan import Side
from shared.kafka.connect.cluster import Cluster
from shared.kafka.read.fetcher import Fetcher
from shared.kafka.read.reading import Reading
from shared.kafka.record import Record
from shared.kafka.send.outcome import Delivery
from shared.kafka.send.sender import Sender

KEY: Final = b"visitor-12345678"
DELIVER_S: Final = 120.0
"""On a busy machine, the first batches of new topics have taken most of a minute."""
TAKEN_AT_ONCE: Final = 500
WAIT_S: Final = 0.2

Groups = Iterable[tuple[str, int]]
"""Topics, and how many fragments go to each."""
Seen = Callable[[Sequence[Any]], None]
"""Is called with records of one topic, each with `value` and `timestamp`."""


class Writer(Protocol):
    """Writes fragments to topics with one partition."""

    async def open(self, topics: Sequence[str]) -> None:
        """Connects, and reads the metadata."""
        ...

    async def write(self, groups: Groups, value: bytes) -> None:
        """Returns once all are acknowledged."""
        ...

    async def close(self) -> None: ...


class Reader(Protocol):
    """Reads topics with one partition from offsets on."""

    async def open(self, topics: Sequence[str]) -> None:
        """Connects, and reads the metadata; reads nothing yet."""
        ...

    def start(self, offsets: Mapping[str, int]) -> None:
        """Begins to read."""
        ...

    async def follow(self, seen: Seen) -> None:
        """Takes records as they come, until it is cancelled."""
        ...

    async def take(self, seen: Seen) -> None:
        """Takes what has come."""
        ...

    async def close(self) -> None: ...


class BatonWriter:
    """The sender of a producer."""

    def __init__(self, kafka: str, batch_bytes: int) -> None:
        self._cluster = Cluster(kafka)
        self._batch_bytes = batch_bytes

    async def open(self, topics: Sequence[str]) -> None:
        await self._cluster.know(topics)
        self._sender = Sender(self._cluster, deliver_s=DELIVER_S, max_batch_bytes=self._batch_bytes)

    async def write(self, groups: Groups, value: bytes) -> None:
        delivery = Delivery()
        for topic, count in groups:
            records: list[Record] = [(KEY, value, [])] * count
            delivery.expect(self._sender.add((topic, 0), records, range(count), delivery))
        await delivery.done
        if delivery.loss is not None:
            raise RuntimeError(delivery.loss.reason)

    async def close(self) -> None:
        await self._sender.close()
        await self._cluster.close()


class AiokafkaWriter:
    """aiokafka's producer, with `send`."""

    def __init__(self, kafka: str, batch_bytes: int) -> None:
        self._producer = AIOKafkaProducer(
            bootstrap_servers=kafka,
            acks="all",
            enable_idempotence=True,
            linger_ms=0,
            max_batch_size=batch_bytes,
            request_timeout_ms=int(DELIVER_S * 1_000),
        )

    async def open(self, topics: Sequence[str]) -> None:
        await self._producer.start()
        await asyncio.gather(*(self._producer.partitions_for(topic) for topic in topics))

    async def write(self, groups: Groups, value: bytes) -> None:
        send = self._producer.send
        sent = [
            await send(topic, value, key=KEY, partition=0) for topic, count in groups for _ in range(count)
        ]
        for one in sent:
            await one

    async def close(self) -> None:
        await self._producer.stop()


class BatonReader:
    """The fetcher of a member, with a task for each stream, as in a member."""

    def __init__(self, kafka: str) -> None:
        self._cluster = Cluster(kafka)
        self._fetcher = Fetcher(self._cluster)
        self._readings: list[Reading] = []

    async def open(self, topics: Sequence[str]) -> None:
        await self._cluster.know(topics)

    def start(self, offsets: Mapping[str, int]) -> None:
        self._readings = [self._fetcher.read(topic, 0, offset) for topic, offset in offsets.items()]

    async def follow(self, seen: Seen) -> None:
        async def one(reading: Reading) -> None:
            while True:
                if records := await reading.take(WAIT_S, TAKEN_AT_ONCE):
                    seen(records)

        async with asyncio.TaskGroup() as tasks:
            for reading in self._readings:
                tasks.create_task(one(reading))

    async def take(self, seen: Seen) -> None:
        for reading in self._readings:
            while reading.size:
                if records := await reading.take(0, TAKEN_AT_ONCE):
                    seen(records)

    async def close(self) -> None:
        await self._fetcher.close()
        await self._cluster.close()


class AiokafkaReader:
    """aiokafka's consumer, with `getmany`."""

    def __init__(self, kafka: str) -> None:
        self._consumer = AIOKafkaConsumer(bootstrap_servers=kafka, group_id=None, enable_auto_commit=False)

    async def open(self, topics: Sequence[str]) -> None:
        await self._consumer.start()
        partitions = [TopicPartition(topic, 0) for topic in topics]
        self._consumer.assign(partitions)
        self._consumer.pause(*partitions)

    def start(self, offsets: Mapping[str, int]) -> None:
        for topic, offset in offsets.items():
            self._consumer.seek(TopicPartition(topic, 0), offset)
        self._consumer.resume(*self._consumer.assignment())

    async def follow(self, seen: Seen) -> None:
        while True:
            for records in (await self._consumer.getmany(timeout_ms=int(WAIT_S * 1_000))).values():
                seen(records)

    async def take(self, seen: Seen) -> None:
        for records in (await self._consumer.getmany()).values():
            seen(records)

    async def close(self) -> None:
        await self._consumer.stop()


def writer_of(side: Side, kafka: str, batch_bytes: int) -> Writer:
    """A new writer of that side."""
    return BatonWriter(kafka, batch_bytes) if side == "baton" else AiokafkaWriter(kafka, batch_bytes)


def reader_of(side: Side, kafka: str) -> Reader:
    """A new reader of that side."""
    return BatonReader(kafka) if side == "baton" else AiokafkaReader(kafka)
