"""Expiries, outages and flapping members in virtual time: a stream with a good owner stays there."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from tests.fakes.virtual_time import until, virtual_time
from tests.unit.consumer.handover_world import sharing


@virtual_time
async def test_an_expired_member_continues_from_its_own_memory() -> None:
    """In a new epoch, with everything not yet committed; it reads no record again."""
    world = await sharing(3, "a")
    one = world.members["a"]
    world.fill()
    await until(lambda: all(one.worker(n).position == 6 for n in range(3)))
    committed = world.broker.commits

    world.store.expire(one.session_id)
    await until(lambda: world.epochs() == {0: 2, 1: 2, 2: 2})
    await world.settled()
    uncommitted = world.broker.commits == committed
    await world.committed()

    assert uncommitted
    assert all(worker.is_warm for worker in one.member.workers)
    assert world.read_again() == set()
    assert [event.kind for event in world.event_sink.events].count("expiry") == 1
    await world.finish()


@pytest.mark.parametrize("loss", ["before", "after"])
@virtual_time
async def test_after_an_unknown_commit_an_expired_member_replays(loss: str) -> None:
    """Memory no longer holds what the commit wrote; only the log does."""
    world = await sharing(1, "a")
    one = world.members["a"]
    world.broker.lose.append("before" if loss == "before" else "after")
    world.fill()
    await until(lambda: not world.broker.lose)

    world.store.expire(one.session_id)
    await until(lambda: world.epochs() == {0: 2})
    await world.settled()

    assert not one.worker(0).is_warm
    assert world.read_again() != set()
    await world.finish()


@pytest.mark.parametrize("expired", [False, True], ids=["sessions live on", "sessions expire"])
@virtual_time
async def test_a_zookeeper_outage_for_all_moves_nothing(expired: bool) -> None:
    """All members pause and resume; no stream moves, although some members are back before others."""
    world = await sharing(6, "a", "b", "c")
    await asyncio.sleep(20)
    owners, epochs, before = world.owners(), world.epochs(), len(world.events("handover"))
    for one in world.members.values():
        one.coordinator.zookeeper.disconnect()
    await asyncio.sleep(10)
    commits = world.broker.commits
    world.fill()
    await asyncio.sleep(60)
    paused = world.broker.commits == commits

    for one in world.members.values():
        if expired:
            world.store.expire(one.session_id)
    for one in world.members.values():
        one.coordinator.zookeeper.reconnect()
        await asyncio.sleep(0.9)
    await world.committed()
    await asyncio.sleep(30)

    assert paused
    assert world.owners() == owners
    assert len(world.events("handover")) == before
    assert {n: epoch - epochs[n] for n, epoch in world.epochs().items()} == dict.fromkeys(
        range(6), int(expired)
    )
    await world.finish_without_replay()


@virtual_time
async def test_streams_of_a_lost_member_move_by_replay_and_back_by_handover() -> None:
    """Others take over from the log. Once the member is back, its share moves live, with open sessions."""
    world = await sharing(4, "a", "b")
    await asyncio.sleep(20)
    one = world.members["a"]
    one.coordinator.zookeeper.disconnect()
    world.store.expire(one.session_id)
    await until(lambda: len(world.members["b"].running) == 4)
    before = len(world.events("handover"))
    world.fill()
    await world.committed()

    one.coordinator.zookeeper.reconnect()
    await asyncio.sleep(30)
    await world.settled()

    assert all(event.warm and event.sessions for event in world.events("handover")[before:])
    assert len(world.events("handover")[before:]) == 2
    await world.finish()


@virtual_time
async def test_a_flapping_member_does_not_disturb_the_others() -> None:
    """It joins and dies every five seconds, twenty times, and gets fewer and fewer streams."""
    world = await sharing(6, "a", "b")
    await asyncio.sleep(20)
    before = len(world.events("handover"))

    for _ in range(20):
        await world.join("c")
        await asyncio.sleep(5)
        world.strike_down("c")
        await world.bury()
    await world.settled()

    moved = world.events("handover")[before:]
    assert len(moved) <= 8  # undamped: 40
    assert all(event.target == "c" for event in moved)
    await world.finish()


@virtual_time
async def test_a_rolling_restart_moves_few_streams_and_all_of_them_warm() -> None:
    """Members leave one after the other and come back; every move is warm, and no record is read again."""
    world = await sharing(6, "a", "b", "c")
    await asyncio.sleep(20)
    before = len(world.events("handover"))

    for name in "abc":
        await world.stop(name)
        await world.join(name)
        await asyncio.sleep(15)
        await world.settled()

    moved = world.events("handover")[before:]
    assert max(Counter(event.stream for event in moved).values()) <= 3
    assert len(moved) <= 12
    assert all(event.warm for event in moved)
    await world.finish_without_replay()


@virtual_time
async def test_the_donor_drops_the_state_of_a_stream_it_handed_over() -> None:
    """Other members can fetch the state for a while; then it is dropped, even if nothing else happens."""
    world = await sharing(2, "a")
    await world.join("b")
    await until(lambda: len(world.events("handover")) == 1)
    hint_store = world.members["a"].member.hint_store
    assert repr(hint_store) == "<HintStore 0 promised, 0 handed, 1 own>"

    await asyncio.sleep(60)

    assert repr(hint_store) == "<HintStore 0 promised, 0 handed, 0 own>"
    await world.end()
