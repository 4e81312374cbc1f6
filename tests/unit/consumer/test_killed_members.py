"""A member that is killed cannot report its end, so the events of others show it."""

from __future__ import annotations

import pytest

from shared.model.events import Event
from tests.fakes.virtual_time import until, virtual_time
from tests.unit.consumer.group_world import GroupWorld
from tests.unit.consumer.stream_world import LONG


async def group_of(count: int, *names: str) -> GroupWorld:
    """A group of these members, each with its share of the streams."""
    world = GroupWorld(LONG, count)
    for name in names:
        await world.join(name)
        await world.settled()
    return world


def ends(world: GroupWorld) -> list[Event]:
    """The events of members that ended, or whose ZooKeeper session did."""
    return [event for event in world.event_sink.events if event.kind in ("expiry", "leave")]


def takeovers(world: GroupWorld) -> list[Event]:
    """The events of takeovers, by stream."""
    found = [event for event in world.event_sink.events if event.kind == "takeover"]
    return sorted(found, key=lambda event: event.stream or 0)


@pytest.mark.parametrize("names", ["ab", "abc"])
@virtual_time
async def test_the_end_of_a_killed_member_is_an_event(names: str) -> None:
    """Each member that takes over its streams reports it once, however many streams that are."""
    world = await group_of(6, *names)

    world.store.expire(await world.kill("a"))
    await world.settled()

    assert {(event.kind, event.member) for event in ends(world)} == {("expiry", "a")}
    assert all("without releasing" in event.why for event in ends(world))
    assert 1 <= len(ends(world)) < len(names)
    for name in list(world.members):
        await world.stop(name)


@virtual_time
async def test_a_takeover_says_what_it_cost() -> None:
    """From whom, the sessions that are open again, and how long nobody had the stream.

    The first claim of a stream and a handover are none.
    """
    world = await group_of(4, "a", "b")
    before = takeovers(world)
    orphans = world.members["a"].running
    for stream in range(4):
        world.emit(f"key {stream}", stream=stream)
    await world.committed()

    begin_ms = world.wall_ms()
    world.store.expire(await world.kill("a"))
    await world.settled()
    await until(lambda: len(takeovers(world)) == len(orphans))

    assert before == []
    assert [event.stream for event in takeovers(world)] == orphans
    for event in takeovers(world):
        assert (event.source, event.target, event.sessions, event.warm) == ("a", "b", 1, False)
        assert 0 < (event.pause_ms or 0) <= event.at - begin_ms
    await world.stop("b")


@virtual_time
async def test_the_end_of_a_killed_process_is_an_event_of_its_successor() -> None:
    """It comes back under the same id before its ZooKeeper session has expired."""
    world = await group_of(3, "a")
    await world.kill("a")

    await world.join("a")
    await world.settled()

    assert [(event.kind, event.member) for event in ends(world)] == [("expiry", "a")]
    await world.stop("a")


@virtual_time
async def test_the_end_of_a_member_that_leaves_in_order_is_its_own_event_alone() -> None:
    """It releases its streams, so no other event reports its end."""
    world = await group_of(4, "a", "b")

    await world.stop("a")
    await world.settled()
    await world.join("a")
    await world.settled()
    await world.stop("b")
    await world.stop("a")

    assert [(event.kind, event.member) for event in ends(world)] == [
        ("leave", "a"),
        ("leave", "b"),
        ("leave", "a"),
    ]
