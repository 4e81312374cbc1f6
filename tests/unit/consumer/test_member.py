"""Members over one in-memory ZooKeeper and broker, in virtual time: take-over, release, expiry."""

from __future__ import annotations

import asyncio

from services.consumer.core.ownership.lease import FACTOR
from services.consumer.member.status import Rates, member_status
from shared.model.names import Names
from tests.fakes.virtual_time import until, virtual_time
from tests.unit.consumer.group_world import TIMEOUT_S, settled_group


@virtual_time
async def test_the_last_member_leaves_no_claim() -> None:
    """It commits and releases everything even though no other member is left."""
    world = await settled_group(3, "a")
    world.emit("k", end=True)
    await asyncio.sleep(0.2)

    await world.stop("a")

    assert world.store.children(Names().claims("default")) == []
    assert world.keys() == ["k"]
    assert (world.node_of(0).seq, world.node_of(0).target) == (1, None)


@virtual_time
async def test_a_dead_owners_streams_are_taken_over_after_its_session_times_out() -> None:
    """The new owner starts at the safe offset: open sessions lose nothing, closed ones do not return."""
    world = await settled_group(4, "a", "b")
    for stream in range(4):
        world.emit("open", stream=stream)
        world.emit("done", stream=stream, end=True)
    await world.committed()
    session = await world.kill("a")
    for stream in range(4):
        world.emit("open", stream=stream, end=True)
    await asyncio.sleep(TIMEOUT_S)
    assert len(world.members["b"].running) == 2

    world.store.expire(session)
    await world.settled()
    await world.committed()

    assert len(world.members["b"].running) == 4
    assert world.rows() == world.expected()
    await world.end()


@virtual_time
async def test_a_member_that_comes_back_reclaims_its_streams_at_once() -> None:
    """It replaces the claims of its former ZooKeeper session; it neither adopts nor outwaits them."""
    world = await settled_group(2, "a")
    world.emit("k")
    await world.committed()
    await world.kill("a")

    begun_s = asyncio.get_running_loop().time()
    again = await world.join("a")
    await world.settled()

    assert asyncio.get_running_loop().time() - begun_s < 1
    assert [worker.epoch for worker in again.member.workers] == [2, 2]
    await world.end()


@virtual_time
async def test_past_its_lease_a_member_pauses_and_resumes_in_the_same_epoch() -> None:
    """Disconnected beyond its lease but not expired: it commits nothing, and claims nothing anew."""
    world = await settled_group(1, "a")
    one = world.members["a"]
    one.coordinator.zookeeper.disconnect()
    await asyncio.sleep(TIMEOUT_S * FACTOR + 0.2)
    commits = world.broker.commits
    world.emit("k", end=True)
    await asyncio.sleep(60)
    status = member_status([one.member], "a", "default", one.member.node, Rates(lambda: 0.0))
    complaints, paused = one.member.complaints(), world.broker.commits

    one.coordinator.zookeeper.reconnect()
    await world.committed()

    assert paused == commits
    assert status["lease_ms"] == 0
    assert complaints == ["the lease has expired: ZooKeeper does not answer"]
    assert world.keys() == ["k"]
    assert one.worker(0).epoch == 1
    await world.end()


@virtual_time
async def test_a_zombie_changes_nothing() -> None:
    """Cut off while another member took over, it still tries to commit, but Kafka fences it."""
    world = await settled_group(1, "a")
    zombie = world.members["a"]
    world.emit("k")
    await world.committed()
    zombie.coordinator.zookeeper.disconnect()
    world.store.expire(zombie.session_id)
    other = await world.join("b")
    await until(lambda: other.running == [0])
    world.emit("k", end=True)
    await world.committed()

    await asyncio.sleep(60)
    zombie.coordinator.zookeeper.reconnect()
    await asyncio.sleep(10)

    head = world.broker.stored(0).head
    assert head is not None
    assert (world.keys(), head.epoch) == (["k"], other.worker(0).epoch)
    assert zombie.running == []
    await world.end()
