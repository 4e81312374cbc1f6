"""A stream that opens and then fails, again and again: its owner tries less and less often, and says why."""

from __future__ import annotations

import asyncio

import pytest

from services.consumer.member.metrics import ConsumerMetrics
from services.consumer.member.status import Rates, member_status
from tests.fakes.virtual_time import until, virtual_time
from tests.unit.consumer.group_world import GroupWorld
from tests.unit.consumer.stream_world import LONG, StreamWorld

FAILURES = ["fetch", "commit"]
"""A record with a bad checksum, which no fetch gets past, and one too large to be written."""


@pytest.mark.parametrize("what", FAILURES)
@virtual_time
async def test_a_life_that_gets_no_further_is_repeated_less_and_less_often(what: str) -> None:
    """Each life fences and loads; without progress there are few of them, and nothing is lost."""
    world = StreamWorld(LONG)
    worker, ended = world.start()
    world.emit("before", end=True)
    await world.until_committed()
    world.emit("bad", end=True)
    world.log.fails_at[what] = 1

    await asyncio.sleep(600)
    assert world.broker.stored(0).producer < 60
    assert (worker.state, worker.retries.why) == ("retrying", f"offset 1 fails the {what}")
    assert worker.retries.failures > 20
    world.log.fails_at.clear()
    await until(world.is_committed, within_s=60)

    assert (worker.state, worker.retries.failures, worker.retries.why) == ("running", 0, "")
    assert worker.retries.last_why == f"offset 1 fails the {what}"
    assert world.keys() == ["before", "bad"]
    ended.cancel()


@virtual_time
async def test_progress_ends_the_back_off() -> None:
    """A life that commits beyond the point where the last one failed counts as the first again."""
    world = StreamWorld(LONG)
    worker, ended = world.start()
    for bad in range(20):
        world.log.fails_at["fetch"] = bad
        world.emit("k", end=True)
        await until(lambda: worker.retries.failures > 2)
        world.log.fails_at.clear()
        begun_s = asyncio.get_running_loop().time()

        await world.until_committed()

        assert asyncio.get_running_loop().time() - begun_s < 3
        assert worker.retries.failures == 0
    ended.cancel()


@virtual_time
async def test_a_quiet_stream_recovers_without_a_commit() -> None:
    """There is nothing to commit, so a while at the log's end without a failure counts as progress."""
    world = StreamWorld(LONG)
    worker, ended = world.start()
    world.emit("k", end=True)
    await world.until_committed()
    world.log.fails_at["fetch"] = 1
    world.emit("k", end=True)
    await until(lambda: worker.retries.failures > 4)
    world.broker.stored(0).log.pop()  # as if that record had never been

    world.log.fails_at.clear()
    await until(lambda: worker.state == "running")
    soon = worker.retries.failures
    await asyncio.sleep(60)

    assert soon > 4
    assert (worker.state, worker.retries.failures) == ("running", 0)
    ended.cancel()


@virtual_time
async def test_a_slow_opening_is_not_mistaken_for_a_reader_that_hangs() -> None:
    """It does not read yet: the watchdog leaves it alone, and the stream is opened once."""
    world = GroupWorld(LONG, 1)
    one = await world.join("a")
    world.emit("k", end=True)
    await world.committed()

    async def slow() -> None:
        await asyncio.sleep(28)

    await asyncio.sleep(10)
    one.log.before_open = slow
    world.broker.start_producer(0, "a zombie")
    world.emit("k", end=True)
    await world.committed()

    assert world.broker.stored(0).producer == 3
    one.log.before_open = None
    await world.end()


@virtual_time
async def test_status_and_metrics_name_the_streams_that_fail_and_why() -> None:
    """An operator sees which streams do not get on, without reading a log."""
    world = GroupWorld(LONG, 2)
    one = await world.join("a")
    await world.settled()
    one.log.fails_at["fetch"] = 0
    world.emit("k", stream=1)

    await asyncio.sleep(60)
    rows = member_status([one.member], "a", "default", one.member.node, Rates(lambda: 0.0))["streams"]
    metrics = ConsumerMetrics([one.member]).registry

    assert [(row["state"], row["why"]) for row in rows] == [
        ("running", ""),
        ("retrying", "offset 0 fails the fetch"),
    ]
    assert rows[0]["failures"] == 0
    assert rows[1]["failures"] > 5
    assert metrics.get_sample_value("baton_streams_failing") == 1
    one.log.fails_at.clear()
    await world.end()
