"""A stream that is claimed is read: after late drains, expiries during a mass claim, and stuck openings."""

from __future__ import annotations

import asyncio

import pytest

from services.consumer.member.effects import CALLS_AT_ONCE, Pace
from services.consumer.stream.opening import STALLED_S
from shared.model.head import Head
from shared.model.names import Names
from tests.fakes.virtual_time import until, virtual_time
from tests.unit.consumer.group_world import GroupWorld
from tests.unit.consumer.stream_world import LONG, StreamWorld

OPENINGS_AT_ONCE = 32
MORE = 8


@virtual_time
async def test_a_drain_past_its_time_leaves_no_claim() -> None:
    """The member's ZooKeeper session ends with the drain, although its process lives on; others take over."""
    world = GroupWorld(LONG, 48)
    world.pace = Pace(drain_s=0.1)
    one = await world.join("a")
    await world.settled()
    two = await world.join("b")
    await asyncio.sleep(0.01)
    for stream in range(48):
        world.emit("k", stream=stream, end=True)

    one.member.departure.drain("asked")
    await one.task
    left = len(two.member.workers)
    await until(lambda: len(two.running) == 48, within_s=5)
    await world.committed()

    assert left < 48
    assert one.member.state == "drained"
    assert world.store.children(Names().members("default")) == ["b"]
    assert [event.kind for event in world.event_sink.events].count("leave") == 1
    assert world.rows() == world.expected()
    await world.stop("b")


@virtual_time
async def test_an_expiry_while_claims_wait_for_their_turn_leaves_no_stream_unread() -> None:
    """A claim made in a new ZooKeeper session is used under that session's lease, whenever it was decided."""
    world = GroupWorld(LONG, 2 * CALLS_AT_ONCE)
    one = await world.join("a")
    while not one.member.effect_runner.busy:  # noqa: ASYNC110  no virtual time passes while it claims
        await asyncio.sleep(0)

    world.store.expire(one.session_id)
    await world.settled()
    for stream in range(world.count):
        world.emit("k", stream=stream, end=True)
    await until(lambda: all(map(world.is_committed, range(world.count))), within_s=60)

    assert len(world.keys()) == world.count
    await world.end()


@virtual_time
async def test_an_opening_may_take_as_long_as_it_makes_progress() -> None:
    """A large checkpoint takes minutes to load; the stream is opened once."""
    world = StreamWorld(LONG)

    async def load() -> None:
        for _ in range(20):
            await asyncio.sleep(STALLED_S - 1)
            world.log.checkpoint_records_read += 1

    world.log.before_open = load
    worker, ended = world.start()

    await until(lambda: worker.state == "running", within_s=21 * STALLED_S)

    assert world.broker.stored(0).producer == 1
    assert worker.timeline.opened_after_s > 19 * STALLED_S
    ended.cancel()


@virtual_time
async def test_streams_in_rewind_keep_no_other_stream_from_being_claimed() -> None:
    """They wait for an operator, so they are not being opened."""
    world = GroupWorld(LONG, OPENINGS_AT_ONCE + MORE)
    for stream in range(OPENINGS_AT_ONCE):
        world.broker.stored(stream).head = Head(epoch=0, seq=1, position=5, safe_offset=5)
    one = await world.join("a")

    await until(lambda: len(one.running) == MORE, within_s=60)

    assert [worker.state for worker in one.member.workers].count("rewind") == OPENINGS_AT_ONCE
    await world.end()


@pytest.mark.parametrize("first", [0, 4], ids=["first in order", "last in order"])
@virtual_time
async def test_openings_that_hang_keep_no_other_stream_from_being_claimed(first: int) -> None:
    """An opening without progress ends; while it waits for its next try, others are opened."""
    world = GroupWorld(LONG, OPENINGS_AT_ONCE + MORE)
    stuck = set(range(first, first + OPENINGS_AT_ONCE))
    one = await world.join("a")
    one.log.stuck |= stuck

    await until(lambda: len(one.running) == MORE, within_s=120)
    one.log.stuck.clear()

    await until(lambda: len(one.running) == world.count, within_s=120)
    await world.end()
