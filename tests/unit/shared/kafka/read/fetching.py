"""A fetcher of brokers in memory, and records whose value is their offset."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from shared.kafka.connect.cluster import Cluster
from shared.kafka.read.fetcher import Fetcher
from shared.kafka.read.reading import Reading
from tests.fakes.kafka import FakeKafka

MOST = 2_000
LONG_S = 60.0


@contextlib.asynccontextmanager
async def reading_from(kafka: FakeKafka, **options: Any) -> AsyncIterator[Fetcher]:
    cluster = Cluster("fake:1", kafka.connect)
    reader = Fetcher(cluster, **options)
    try:
        yield reader
    finally:
        await reader.close()
        await cluster.close()


async def values(one: Reading, count: int) -> list[tuple[int, bytes]]:
    """The next records, as offset and value, until there are `count`."""
    found: list[tuple[int, bytes]] = []
    async with asyncio.timeout(LONG_S):
        while len(found) < count:
            found += [(record.offset, record.value) for record in await one.take(1.0, MOST)]
    return found


def numbered(first: int, end: int) -> list[tuple[int, bytes]]:
    return [(n, b"%d" % n) for n in range(first, end)]


def fill(kafka: FakeKafka, topic: str, count: int, *, batch: int = 10) -> None:
    """Appends records whose value is their offset."""
    partition = kafka.partitions[topic, 0]
    first = partition.end
    for start in range(first, first + count, batch):
        partition.append(*(b"%d" % n for n in range(start, min(start + batch, first + count))))
    kafka.wake()
