"""Queues that nobody works, and what their items leave to the queues beside them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from services.queue.kafka import items as kafka_items
from services.queue.kafka.cache import ItemCaches
from services.queue.kafka.items import KafkaItemLog, Shared
from shared.kafka.connect.cluster import Cluster
from shared.kafka.read import fetch_lane, fetcher, reading
from shared.kafka.read.fetcher import Fetcher
from tests.fakes.kafka import FakeKafka
from tests.fakes.virtual_time import until, virtual_time

ROOM = 60_000
BACKLOG = 200


@pytest.fixture(autouse=True)
def small_fetches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes in proportion to the room."""
    monkeypatch.setattr(fetch_lane, "ANSWER_BYTES", 30_000)
    for module in (fetch_lane, reading):
        monkeypatch.setattr(module, "FETCH_BYTES", 15_000)
    monkeypatch.setattr(fetcher, "LEAST_SHARE", 100)
    monkeypatch.setattr(kafka_items, "TAKEN_AT_ONCE", 3)


@contextlib.asynccontextmanager
async def queues(kafka: FakeKafka, *topics: str) -> AsyncIterator[tuple[Fetcher, list[KafkaItemLog]]]:
    """The items of queues that share a fetcher's room, while they are read ahead."""
    cluster = Cluster("fake:1", kafka.connect)
    shared = Shared(ItemCaches(30_000))
    nothing: Any = None
    reader = Fetcher(cluster, max_bytes=ROOM, is_committed=True, pace_s=0)
    logs = [
        KafkaItemLog(cluster, reader, nothing, topic=topic, group="g", partitions=1, shared=shared)
        for topic in topics
    ]
    for log in logs:
        await log.check([0])
    running = [asyncio.create_task(log.run(lambda: None)) for log in logs]
    try:
        yield reader, logs
    finally:
        for task in running:
            task.cancel()
        await asyncio.wait(running)
        await reader.close()
        await cluster.close()


@virtual_time
async def test_queues_that_nobody_works_keep_no_other_from_its_items() -> None:
    """Who is far ahead fetches nothing and holds nothing, so the others are read; and nothing spins."""
    kafka = FakeKafka()
    idle = [f"idle{n}" for n in range(8)]
    for topic in [*idle, "live"]:
        kafka.create(topic)
    for topic in idle:
        for _ in range(BACKLOG):
            kafka.partitions[topic, 0].append(b"x" * 1_000)
    async with queues(kafka, *idle, "live") as (reader, logs):
        await asyncio.sleep(10)
        share = reader.budget().share
        before = len(kafka.fetches)
        await asyncio.sleep(10)
        asked = len(kafka.fetches) - before
        kafka.partitions["live", 0].append(*(b"%d" % n for n in range(5)))
        kafka.wake()
        await until(lambda: logs[-1].ends == [5])
        found = await logs[-1].get([(0, 4)])
        ready = [list(log.backlog_ends) for log in logs[:-1]]

    assert share == ROOM
    assert found[0, 4].value == b"4"
    assert ready == [[BACKLOG]] * len(idle)
    assert asked <= 15


@virtual_time
async def test_a_backlog_is_read_ahead_to_its_end_as_it_is_leased() -> None:
    """Pauses lose nothing, and read nothing twice into the cache."""
    kafka = FakeKafka()
    kafka.create("q")
    for n in range(BACKLOG):
        kafka.partitions["q", 0].append(b"%d" % n * 300)
    async with queues(kafka, "q") as (_, (log,)):
        for n in range(BACKLOG):
            await until(lambda n=n: log.ends[0] > n)  # type: ignore[misc]
            found = await log.get([(0, n)])
            assert found[0, n].value == b"%d" % n * 300
            log.follow([n + 1])
        status = list(log.backlog_ends)

    assert status == [BACKLOG]
