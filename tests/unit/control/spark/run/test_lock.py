"""One driver at a time holds the lock of a job: who has lost it hears so before it commits."""

from __future__ import annotations

import asyncio

import pytest

from services.control.spark.run.lock import ANSWER_S, Holder, LockLost, RunLock, RunUnderWay
from shared.errors import ZooKeeperUnavailable
from shared.model.names import Names
from tests.fakes.coordinator import InMemoryZooKeeper, ZnodeStore
from tests.fakes.virtual_time import virtual_time

PATH = Names("n").run_lock("default", "lake")
WAIT_S = 10.0


class World:
    """Drivers of one job; each has a ZooKeeper session of its own."""

    def __init__(self) -> None:
        self.store = ZnodeStore(clock=asyncio.get_running_loop().time)

    def driver(self, name: str) -> tuple[RunLock, InMemoryZooKeeper]:
        zookeeper = InMemoryZooKeeper(self.store)
        return RunLock(zookeeper, PATH, Holder(run=name, host="h", pid=7)), zookeeper


@virtual_time
async def test_a_second_driver_waits_and_then_names_the_first() -> None:
    """It does not run beside it, and says who is in its way."""
    world = World()
    (first, _), (second, _) = world.driver("r1"), world.driver("r2")
    await first.acquire(WAIT_S)

    began_s = asyncio.get_running_loop().time()
    with pytest.raises(RunUnderWay, match=r"run r1 .* h \(process 7\)"):
        await second.acquire(WAIT_S)

    assert asyncio.get_running_loop().time() - began_s > WAIT_S
    await first.check()


@pytest.mark.parametrize("how", ["closes", "expires"])
@virtual_time
async def test_the_next_driver_gets_the_lock_of_one_that_has_ended(how: str) -> None:
    """At once if it ended in order, else with its ZooKeeper session."""
    world = World()
    (first, one), (second, _) = world.driver("r1"), world.driver("r2")
    await first.acquire(WAIT_S)
    waiting = asyncio.create_task(second.acquire(WAIT_S))
    await asyncio.sleep(1)

    if how == "closes":
        await one.close()
    else:
        assert one.session is not None
        world.store.expire(one.session.id)
    await waiting

    await second.check()
    with pytest.raises((LockLost, ZooKeeperUnavailable)):
        await first.check()


@virtual_time
async def test_a_driver_that_stood_still_for_too_long_commits_nothing() -> None:
    """It learns so at its next check, although nobody else has begun yet."""
    world = World()
    lock, zookeeper = world.driver("r1")
    await lock.acquire(WAIT_S)
    assert zookeeper.session is not None
    world.store.expire(zookeeper.session.id)

    for _ in range(2):
        with pytest.raises(LockLost):
            await lock.check()
    assert lock.is_lost


@virtual_time
async def test_an_outage_that_the_session_survives_does_not_end_the_run() -> None:
    """The check waits for ZooKeeper; for longer than that it fails, without a verdict."""
    world = World()
    lock, zookeeper = world.driver("r1")
    await lock.acquire(WAIT_S)

    zookeeper.disconnect()
    checking = asyncio.create_task(lock.check())
    await asyncio.sleep(ANSWER_S / 2)
    zookeeper.reconnect()
    await checking

    zookeeper.disconnect()
    with pytest.raises(ZooKeeperUnavailable):
        await lock.check()
    assert not lock.is_lost


@virtual_time
async def test_a_lock_that_was_taken_away_by_hand_is_lost() -> None:
    """Also if another driver has made the znode anew."""
    world = World()
    (first, one), (second, _) = world.driver("r1"), world.driver("r2")
    await first.acquire(WAIT_S)
    await one.delete(PATH)
    await second.acquire(WAIT_S)

    with pytest.raises(LockLost):
        await first.check()
    await second.check()


@pytest.mark.parametrize("fault", ["lose_requests", "lose_answers", "delay_requests"])
@virtual_time
async def test_an_unknown_outcome_is_looked_up(fault: str) -> None:
    """The lock is taken once, whatever became of the request."""
    world = World()
    lock, zookeeper = world.driver("r1")
    setattr(zookeeper, fault, 4)

    await lock.acquire(WAIT_S)
    zookeeper.deliver_delayed()

    await lock.check()
