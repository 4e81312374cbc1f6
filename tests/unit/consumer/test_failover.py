"""A killed member's streams go on at once, and a suspicion that is wrong costs nothing but a replay."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from services.consumer.member.metrics import ConsumerMetrics
from shared.model.names import Names
from shared.zookeeper.znodes import Create, Delete, Set
from tests.fakes.virtual_time import until, virtual_time
from tests.unit.consumer.group_world import TIMEOUT_S, GroupWorld, settled_group
from tests.unit.consumer.stream_world import LONG

SETTLED_S = 10.0
SOON_S = 0.5
"""Two refused connections, and two transactions with ZooKeeper."""


async def working(world: GroupWorld) -> None:
    """Every stream has an open session, and is committed; the members have settled."""
    for stream in range(world.count):
        world.emit("k", stream=stream)
    await asyncio.sleep(SETTLED_S)
    await world.committed()


async def finish(world: GroupWorld) -> None:
    """Ends all sessions; each of them must be delivered once."""
    for stream in range(world.count):
        world.emit("k", stream=stream, end=True)
    await world.committed()
    assert world.rows() == world.expected()
    await world.end()


@pytest.mark.parametrize("names", ["ab", "abc", "abcde"])
@virtual_time
async def test_a_killed_members_streams_are_taken_over_at_once(names: str) -> None:
    """Its ZooKeeper session still lives; the others share its streams as planned, each in a new epoch."""
    world = await settled_group(12, *names)
    await working(world)
    epochs = {n: world.node_of(n).epoch for n in world.members["a"].running}

    session = await world.kill("a", with_host=False)
    async with asyncio.timeout(SOON_S):
        await world.settled()

    assert session in world.store.sessions
    assert {n: world.node_of(n).epoch for n in epochs} == {n: epoch + 1 for n, epoch in epochs.items()}
    await finish(world)


@virtual_time
async def test_two_members_that_are_killed_together_are_noticed() -> None:
    """Each is watched by three others."""
    world = await settled_group(12, *"abcd")
    await working(world)

    await asyncio.gather(world.kill("a", with_host=False), world.kill("b", with_host=False))
    async with asyncio.timeout(2 * SOON_S):
        await world.settled()

    counted = [ConsumerMetrics([one.member]).registry for one in world.members.values()]
    assert sum(one.get_sample_value("baton_suspected_total") or 0 for one in counted) == 2
    await finish(world)


@virtual_time
async def test_a_lost_host_waits_for_the_time_out() -> None:
    """Nothing refuses a connection, so nothing shows that the process has ended."""
    world = await settled_group(6, *"ab")
    await working(world)

    session = await world.kill("a")
    await asyncio.sleep(TIMEOUT_S)
    before = len(world.members["b"].running)
    world.store.expire(session)
    await world.settled()

    assert before == 3
    await finish(world)


@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
@virtual_time
async def test_weaker_deliveries_wait_for_the_time_out(delivery: str) -> None:
    """An owner that is wrongly suspected could still deliver, so nobody acts on a suspicion."""
    world = GroupWorld(msgspec.structs.replace(LONG, delivery=delivery), 6)
    for name in "ab":
        await world.join(name)
    await world.settled()

    session = await world.kill("a", with_host=False)
    await asyncio.sleep(TIMEOUT_S)
    before = len(world.members["b"].running)
    world.store.expire(session)
    await world.settled()

    assert before == 3
    await world.end()


@virtual_time
async def test_a_member_that_is_wrongly_suspected_stops_and_joins_again() -> None:
    """Its port answers, so it is back at once; what the others have claimed meanwhile comes back warm."""
    world = await settled_group(12, *"abc")
    await working(world)
    a = world.members["a"]
    session = a.session_id

    world.listeners.refuse("http://a", ["http://b"])
    await until(lambda: not a.running, within_s=SOON_S)
    await until(lambda: "a" in world.store.children(Names().members("default")), within_s=SOON_S)
    await world.settled()
    await asyncio.sleep(60)

    assert a.session_id == session
    assert world.members["b"].member.neighbours.suspected == 1  # it has not connected since
    await finish(world)


@virtual_time
async def test_a_suspected_member_stays_away_while_its_port_is_closed() -> None:
    """Else the others would send to it what never arrives; it reads nothing meanwhile, and says so."""
    world = await settled_group(12, *"abc")
    await working(world)
    a = world.members["a"]

    world.listeners.refuse("http://a")
    await until(lambda: not a.running, within_s=SOON_S)
    await until(lambda: len(world.members["b"].running) == 6, within_s=SOON_S)
    await asyncio.sleep(30)
    ready = a.member.complaints()
    reading = a.running
    world.listeners.accept("http://a")
    await world.settled()

    assert reading == []
    assert "port closed" in ready[0]
    assert a.member.complaints() == []
    await finish(world)


@virtual_time
async def test_a_suspect_that_is_cut_off_from_zookeeper_delivers_nothing_more() -> None:
    """It does not know that it is suspected, and goes on until Kafka fences it."""
    world = await settled_group(4, *"ab")
    await working(world)
    a = world.members["a"]
    mine = list(a.running)

    a.coordinator.zookeeper.disconnect()
    world.listeners.refuse("http://a")
    await until(lambda: len(world.members["b"].running) == 4, within_s=SOON_S)
    for stream in mine:
        world.emit("k", stream=stream)
    await world.committed()
    world.listeners.accept("http://a")
    a.coordinator.zookeeper.reconnect()
    await world.settled()

    await finish(world)


@virtual_time
async def test_a_leaving_member_is_not_suspected() -> None:
    """Its port closes last, when its node is gone."""
    world = await settled_group(6, *"abc")
    await working(world)

    await world.stop("a")
    await world.settled()

    assert [one.member.neighbours.suspected for one in world.members.values()] == [0, 0]
    await finish(world)


@virtual_time
async def test_a_successor_is_not_ended_in_place_of_its_predecessor() -> None:
    """A member that restarts soon keeps its node, and shares are even again."""
    world = await settled_group(6, *"ab")
    await working(world)

    await world.kill("a", with_host=False)
    a = await world.join("a")
    await world.settled()
    session = a.session_id
    await asyncio.sleep(20)

    assert a.session_id == session
    assert len(a.running) == 3
    await finish(world)


@virtual_time
async def test_a_successor_leaves_to_others_at_once_what_is_above_its_share() -> None:
    """The ZooKeeper session of its predecessor, which lives on, keeps nothing from them."""
    world = await settled_group(6, *"ab")
    await working(world)
    pins = Names().pins("default")
    world.store.apply([Create(pins, msgspec.json.encode(dict.fromkeys(map(str, range(6)), "a")))], 0)
    await until(lambda: len(world.members["a"].running) == 6)
    world.store.apply([Delete(pins)], 0)

    session = await world.kill("a", with_host=False)
    await world.join("a")
    async with asyncio.timeout(SOON_S):
        await world.settled()

    assert session in world.store.sessions
    await finish(world)


@virtual_time
async def test_a_damaged_node_is_not_a_missing_one() -> None:
    """A member that cannot be read keeps its streams, and writes its node anew."""
    world = await settled_group(6, *"ab")
    await working(world)
    a = world.members["a"]
    epochs = [world.node_of(n).epoch for n in range(6)]

    world.store.apply([Set(Names().member("default", "a"), b"{")], 0)
    await asyncio.sleep(20)

    assert [world.node_of(n).epoch for n in range(6)] == epochs
    assert len(a.running) == 3
    await finish(world)
