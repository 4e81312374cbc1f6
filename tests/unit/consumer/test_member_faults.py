"""Members whose servers fail, in virtual time: lost answers, resets, hung readers, mute brokers."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from services.consumer.stream.watchdog import STALLED_S, WATCH_EVERY_S
from shared.errors import InvalidInput
from tests.fakes.coordinator import ZnodeStore
from tests.fakes.virtual_time import virtual_time
from tests.unit.consumer.group_world import GroupWorld, settled_group
from tests.unit.consumer.stream_world import LONG


@virtual_time
async def test_lost_answers_from_zookeeper_leave_no_stream_unread() -> None:
    """A member adopts a claim that succeeded after all, and does not repeat a release that took effect."""
    world = GroupWorld(LONG, 6)
    one, two = await world.join("a"), await world.join("b")
    for n in range(40):
        one.coordinator.zookeeper.lose_answers += n % 2
        two.coordinator.zookeeper.lose_requests += n % 3 == 0
        await asyncio.sleep(0.1)
        world.emit("k", stream=n % 6, end=n % 4 == 0)
    one.coordinator.zookeeper.lose_answers = two.coordinator.zookeeper.lose_requests = 0

    await world.settled()
    world.close_all(6)
    await world.committed()

    assert world.rows() == world.expected()
    await world.end()


@pytest.mark.parametrize("owners", ["a", "ababab"], ids=["one owner before", "six owners before"])
@virtual_time
async def test_a_reset_of_zookeeper_raises_epochs_above_the_heads(owners: str) -> None:
    """New claims start at epoch 1 again; members raise them above the stored heads: no epoch serves twice."""
    world = GroupWorld(LONG, 2)
    for number, name in enumerate([*owners, "c"]):
        if number == len(owners):
            world.store = ZnodeStore(clock=asyncio.get_running_loop().time)
        one = await world.join(name)
        await world.settled()
        for stream in range(2):
            world.emit("k", stream=stream, end=True)
        await world.committed()
        epochs = [worker.epoch for worker in one.member.workers]
        await world.stop(name)

    assert epochs == [len(owners) + 1] * 2
    assert [world.node_of(stream).epoch for stream in range(2)] == epochs
    assert [session.epoch for session in world.delivered()] == [n + 1 for n in range(epochs[0]) for _ in "01"]
    assert [event.kind for event in world.event_sink.events].count("reset") == 2
    assert world.rows() == world.expected()


@virtual_time
async def test_running_members_survive_a_reset_of_zookeeper() -> None:
    """All znodes and ZooKeeper sessions are gone; a member creates the group again, and all continue."""
    world = await settled_group(4, "a", "b")
    world.emit("before", end=True)
    world.emit("open")
    await world.committed()

    for session in list(world.store.sessions):
        world.store.expire(session)
    world.store.znodes = {"/": world.store.znodes["/"]}
    await world.settled()
    world.emit("open", end=True)
    await world.committed()

    assert sorted(len(one.running) for one in world.members.values()) == [2, 2]
    assert world.rows() == world.expected()
    await world.end()


@virtual_time
async def test_the_watchdog_replaces_a_hung_reader() -> None:
    """With records to read and no progress for a while, a new reader resumes at the same position."""
    world = await settled_group(1, "a")
    one = world.members["a"]
    one.log.hanging.update(one.log.readers)
    await asyncio.sleep(30)
    begun_s = asyncio.get_running_loop().time()
    world.emit("k", end=True)

    await world.committed()

    took_s = asyncio.get_running_loop().time() - begun_s
    assert STALLED_S < took_s < STALLED_S + 4 * WATCH_EVERY_S
    assert world.keys() == ["k"]
    assert one.worker(0).epoch == 1
    await world.end()


@virtual_time
async def test_a_quiet_stream_keeps_its_reader() -> None:
    """Without records to read, a lack of progress does not matter."""
    world = await settled_group(2, "a")
    one = world.members["a"]

    await asyncio.sleep(600)

    assert len(one.log.readers) == 2
    await world.end()


@virtual_time
async def test_a_member_with_other_settings_than_its_group_is_rejected() -> None:
    """The error names each difference."""
    world = GroupWorld(LONG, 1)
    await world.join("a")
    world.settings = msgspec.structs.replace(LONG, gap_ms=5)

    with pytest.raises(InvalidInput, match="gap_ms: 5 / 1800000"):
        await world.join("b")

    await world.end()


@virtual_time
async def test_members_keep_their_claims_while_a_broker_is_mute() -> None:
    """Kafka is mute for minutes; members keep their streams, and an orderly stop still ends in time."""
    world = await settled_group(3, "a")
    one = world.members["a"]
    world.broker.mute = True
    for stream in range(3):
        world.emit("k", stream=stream, end=True)
    await asyncio.sleep(300)
    epochs = [worker.epoch for worker in one.member.workers]

    took_s = await world.stop("a")
    world.broker.mute = False
    await world.join("b")
    await world.settled()
    await world.committed()

    assert epochs == [1, 1, 1]
    assert took_s < 21
    assert world.rows() == world.expected()
    await world.end()
