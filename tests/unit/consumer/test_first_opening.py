"""How the streams of a group begin that follows another one, by the real worker."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from shared.model.group import GroupSettings
from shared.model.start import GroupStart
from tests.fakes.log import Loss
from tests.fakes.virtual_time import until, virtual_time
from tests.unit.consumer.stream_world import LONG, StreamWorld

START = 2
"""Where the second group starts: in the middle of the session of "a"."""


async def followed() -> StreamWorld:
    """A group whose log is `a b(end) c(end) a(end) d a(end)`; it has delivered "a" twice, "b" and "c"."""
    world = StreamWorld(LONG)
    world.start()
    for key, end in (("a", False), ("b", True), ("c", True), ("a", True), ("d", False), ("a", True)):
        world.emit(key, end=end)
    await world.until_committed()
    return world


def follower(world: StreamWorld, offset: int | None, settings: GroupSettings = LONG) -> StreamWorld:
    """A group that follows that one and starts there."""
    found = StreamWorld(settings)
    found.broker.others["first"] = world.broker
    found.broker.stored(0).log = list(world.broker.stored(0).log)
    found.context = replace(found.context, chain=[GroupStart(follows="first", offsets={0: offset})])
    return found


def offsets(world: StreamWorld) -> list[tuple[str, int, int]]:
    """Key, first and last offset of the delivered sessions."""
    return [(one.key, one.first_offset, one.last_offset) for one in world.delivered()]


@pytest.mark.parametrize("loss", [None, "before", "after"])
@virtual_time
async def test_a_following_stream_begins_at_its_start_and_skips_what_others_deliver(
    loss: Loss | None,
) -> None:
    """Sessions that began below the start are not made again, those that began above it are; whether the
    first commit succeeded or its outcome is unknown."""
    world = follower(await followed(), START)
    world.broker.lose = [loss] if loss else []

    world.start()
    await world.until_committed()

    assert offsets(world) == [("c", 2, 2), ("a", 5, 5)]
    assert world.broker.wrong == []
    stored = world.broker.stored(0)
    assert stored.head is not None
    assert (stored.head.counts.covered, stored.head.counts.fragments) == (1, 4)


def knowing(world: StreamWorld, appended: int) -> StreamWorld:
    """The following group, whose start says when the record before it was appended."""
    (start,) = world.context.chain
    known = msgspec.structs.replace(start, appended={0: appended})
    world.context = replace(world.context, chain=[known])
    return world


@virtual_time
async def test_a_log_that_was_lost_before_the_first_owner_came_stops_the_stream() -> None:
    """Its offsets are those of another log. What is stored by then lets a rewind find that out, too."""
    world = follower(await followed(), START)
    appended = world.broker.stored(0).log[START - 1].timestamp + 1

    worker, _ = knowing(world, appended).start()
    await until(lambda: worker.state == "rewind")

    assert world.delivered() == []
    assert "was appended at" in worker.retries.why
    head = world.broker.stored(0).head
    assert head is None or (head.position, head.appended) == (START, appended)


@virtual_time
async def test_a_start_that_knows_its_log_begins_there() -> None:
    """The record before it is the one that was there."""
    world = follower(await followed(), START)

    knowing(world, world.broker.stored(0).log[START - 1].timestamp).start()
    await world.until_committed()

    assert offsets(world) == [("c", 2, 2), ("a", 5, 5)]


@virtual_time
async def test_what_is_covered_is_committed_before_anything_is_read() -> None:
    """So the sessions of others are read once, however late the first fragment comes."""
    first = await followed()
    world = follower(first, START)
    world.broker.stored(0).log = world.broker.stored(0).log[:START]
    world.start()
    await until(lambda: world.broker.stored(0).head is not None)
    first.broker.sessions.clear()  # retention, or another operator

    world.start(epoch=2)
    world.broker.stored(0).log += first.broker.stored(0).log[START:]
    await world.until_committed()

    assert offsets(world) == [("c", 2, 2), ("a", 5, 5)]


@virtual_time
async def test_a_head_says_which_open_session_is_the_oldest() -> None:
    """-1 if none is open; so another group knows how far what began before is delivered."""
    world = StreamWorld(LONG)
    world.start()
    world.emit("a", end=True)
    await world.until_committed()
    heads = [world.broker.stored(0).head]
    for key, end in (("b", False), ("c", False), ("b", True)):
        world.emit(key, end=end)
        await world.until_committed()
        heads.append(world.broker.stored(0).head)

    assert [head.oldest for head in heads if head is not None] == [-1, 1, 1, 2]


@virtual_time
async def test_what_is_no_session_does_not_keep_a_stream_from_opening() -> None:
    """Somebody else may have written to the topic of the followed group."""
    first = await followed()
    first.broker.sessions[:0] = [(0, b"poison"), (0, b""), (0, b"{}"), (0, b"\xff")]
    world = follower(first, START)

    world.start()
    await world.until_committed()

    assert offsets(world) == [("c", 2, 2), ("a", 5, 5)]


@virtual_time
async def test_sessions_of_a_log_that_is_gone_cover_nothing() -> None:
    """The group before last delivered sessions at the same offsets of another log."""
    first = await followed()
    world = follower(first, START)
    lost = GroupStart(follows="zeroth", offsets={0: None})
    chain = [GroupStart(follows="first", offsets={0: START}), lost]
    world.context = replace(world.context, chain=chain)
    world.broker.others = {"zeroth": first.broker, "first": StreamWorld(LONG).broker}

    world.start()
    await world.until_committed()

    assert offsets(world) == [("c", 2, 2), ("a", 3, 3), ("a", 5, 5)]


@virtual_time
async def test_of_a_log_made_anew_nothing_is_covered() -> None:
    """The start says null: the offsets of the followed group are those of a log that is gone."""
    world = follower(await followed(), None)

    world.start()
    await world.until_committed()

    assert offsets(world) == [("b", 1, 1), ("c", 2, 2), ("a", 0, 3), ("a", 5, 5)]


@virtual_time
async def test_a_start_that_lacks_the_stream_stops_it() -> None:
    """Nothing is written until an operator has looked."""
    world = follower(await followed(), START)
    world.context = replace(world.context, chain=[GroupStart(follows="first", offsets={1: 0})])

    worker, _ = world.start()
    await until(lambda: worker.state == "rewind")

    assert world.broker.stored(0).head is None
    assert "no offset of stream 0" in worker.retries.why
