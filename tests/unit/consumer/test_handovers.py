"""Members hand over streams in virtual time: what a move costs, and what happens when a step fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Literal

import pytest

from services.consumer.core.handover.rules import HandoverLimits
from shared.errors import Conflict
from shared.model.names import Names
from tests.fakes.virtual_time import until, virtual_time
from tests.unit.consumer.handover_world import HandoverWorld, sharing


@virtual_time
async def test_a_join_moves_only_the_planned_streams_and_all_warm() -> None:
    """Three of six streams move to the second member with their sessions, and no record is read again."""
    world = await sharing(6, "a")

    await world.join("b")
    await world.settled()
    world.fill()
    await world.committed()

    moved = world.events("handover")
    assert sorted(world.epochs().values()) == [1, 1, 1, 2, 2, 2]
    assert {event.stream for event in moved} == set(world.members["b"].running)
    for event in moved:
        assert (event.source, event.target, event.warm, event.sessions) == ("a", "b", True, 2)
        assert event.why == "the share of a is 3 of 6"
        assert event.bytes is not None
        assert event.bytes > 0
        assert event.pause_ms is not None
        assert event.pause_ms < 1000
    await world.finish_without_replay()


@virtual_time
async def test_a_drain_hands_everything_over() -> None:
    """All streams move warm while they keep reading, no record is read again, and the member leaves."""
    world = await sharing(6, "a", "b", "c")
    await asyncio.sleep(20)
    before = world.members["a"].running
    before_drain = len(world.events("handover"))

    world.fill()
    took_s = await world.stop("a")
    await world.settled()
    await asyncio.sleep(2)

    moved = world.events("handover")[before_drain:]
    assert took_s < 1
    assert sorted(event.stream or 0 for event in moved) == before
    assert all(event.warm and event.why == "draining" for event in moved)
    await world.finish_without_replay()


@virtual_time
async def test_a_drained_member_reports_that_it_has_left() -> None:
    """After `POST /drain` it has left the group, owns nothing, and is not ready."""
    world = await sharing(4, "a", "b")
    drained = world.members["a"]

    drained.member.departure.drain("requested")
    drained.member.departure.drain("requested again")
    await until(lambda: drained.member.state == "drained")

    assert drained.member.complaints() == ["drained: it has left the group"]
    assert Names().member("default", "a") not in world.store.znodes
    assert len(world.members["b"].running) == 4
    assert world.read_again() == set()
    await world.end()


@virtual_time
async def test_an_undrained_member_takes_streams_again() -> None:
    """It stays in its group, gets its share back, and nothing is read twice."""
    world = await sharing(8, "a", "b")
    drained = world.members["a"]

    drained.member.departure.drain("requested")
    await until(lambda: drained.member.node.state == "draining" and len(drained.running) < 4)
    drained.member.departure.undrain("requested")
    await until(lambda: drained.member.state == "active")
    await world.settled()
    await asyncio.sleep(30)

    assert len(drained.running) == 4
    assert not drained.task.done()
    await world.finish_without_replay()


@virtual_time
async def test_a_member_that_has_let_go_cannot_undrain() -> None:
    """Nor one that is not draining, or whose process ends: a restart makes it join again."""
    world = await sharing(2, "a", "b", "c")
    drained, stopped, idle = (world.members[name].member for name in "abc")

    drained.departure.drain("requested")
    world.members["b"].stop.set()
    await until(lambda: drained.state == stopped.state == "drained")

    for member in (drained, stopped, idle):
        with pytest.raises(Conflict):
            member.departure.undrain("requested")
    del world.members["a"], world.members["b"]
    await world.end()


@pytest.mark.parametrize("loss", ["request", "answer"])
@pytest.mark.parametrize("number", [0, 1], ids=["copy", "delta"])
@virtual_time
async def test_a_lost_message_loses_and_duplicates_nothing(
    number: int, loss: Literal["request", "answer"]
) -> None:
    """The donor continues from its own memory, in the same epoch, as if nothing had happened."""
    world = await sharing(2, "a")
    world.peers.lose = [None] * number + [loss]

    await world.join("b")
    await until(lambda: len(world.peers.sent) > number)
    await asyncio.sleep(1)
    world.fill()
    await world.committed()
    epochs, moved = world.epochs(), world.events("handover")
    await asyncio.sleep(60)
    await world.settled()

    assert epochs == {0: 1, 1: 1}
    assert moved == []
    assert sorted(world.epochs().values()) == [1, 2]  # the next attempt succeeds
    await world.finish_without_replay()


@pytest.mark.parametrize("loss", ["request", "answer", None])
@virtual_time
async def test_a_third_member_fetches_the_donors_bundle_or_replays(
    loss: Literal["request", "answer"] | None,
) -> None:
    """It tries to fetch the frozen bundle once; if that fails, a replay gives the same sessions."""
    world = await sharing(4, "a")
    await world.join("b")
    world.at_next("complete", lambda: world.strike_down("b"))
    await until(lambda: bool(world.events("release")))
    released = world.events("release")[0].stream
    other = await world.join("c")
    await until(lambda: len(other.running) == 1 and len(world.members["a"].running) == 2)
    world.peers.lose = [loss]

    await world.bury()
    await world.settled()

    assert world.owners()[released or 0] == "c"
    assert other.worker(released or 0).is_warm == (loss is None)
    assert world.peers.sent.count("fetch") == 1
    assert ({stream for stream, _ in world.read_again()} == set()) == (loss is None)
    await world.finish()


Fault = Callable[[HandoverWorld], None]


def the_request_is_lost(world: HandoverWorld) -> None:
    world.members["a"].coordinator.zookeeper.lose_requests = 1


def the_request_is_late(world: HandoverWorld) -> None:
    world.members["a"].coordinator.zookeeper.delay_requests = 1


def the_connection_is_lost(world: HandoverWorld) -> None:
    zookeeper = world.members["a"].coordinator.zookeeper
    zookeeper.disconnect()
    asyncio.get_running_loop().call_later(2.0, zookeeper.reconnect)


@pytest.mark.parametrize(
    "fault", [the_request_is_lost, the_request_is_late, the_connection_is_lost], ids=lambda f: f.__name__
)
@virtual_time
async def test_a_failed_release_leaves_the_stream_with_its_donor(fault: Fault) -> None:
    """The donor confirms its claim, so a late release must fail, and continues from memory in its epoch."""
    world = await sharing(2, "a")
    donor = world.members["a"]
    world.at_next("complete", lambda: fault(world))

    await world.join("b")
    await until(lambda: "complete" in world.peers.sent)
    await until(lambda: donor.running == [0, 1])
    late = donor.coordinator.zookeeper.deliver_delayed()
    epochs = world.epochs()
    world.fill()
    await world.committed()

    assert epochs == {0: 1, 1: 1}
    assert not any(late)
    await world.finish_without_replay()


@virtual_time
async def test_a_donor_that_expires_before_the_release_costs_no_replay() -> None:
    """Donor and recipient both have valid memory; the one that claims the stream continues from its own."""
    world = await sharing(2, "a")
    donor = world.members["a"]
    world.at_next("complete", lambda: world.store.expire(donor.session_id))

    await world.join("b")
    await until(lambda: "complete" in world.peers.sent)
    await asyncio.sleep(20)
    await world.settled()
    world.fill()
    await world.committed()

    await world.finish_without_replay()


@virtual_time
async def test_a_release_whose_answer_was_lost_is_read_back() -> None:
    """The release took effect: the recipient continues warm, and the donor stays out."""
    world = await sharing(2, "a")
    zookeeper = world.members["a"].coordinator.zookeeper
    world.at_next("complete", lambda: setattr(zookeeper, "lose_answers", 1))

    await world.join("b")
    await world.settled()
    await asyncio.sleep(2)

    assert [event.warm for event in world.events("handover")] == [True]
    assert len(world.events("release")) == 1
    await world.finish_without_replay()


@pytest.mark.parametrize("first", ["the late release", "the read-back"])
@virtual_time
async def test_the_donor_stays_stopped_until_it_knows_the_outcome(first: str) -> None:
    """The release is late and its read-back is slow: neither member reads until one of them wins."""
    world = await sharing(2, "a")
    zookeeper = world.members["a"].coordinator.zookeeper
    answered = asyncio.Event()

    def hold_up() -> None:
        (stream,) = set(range(2)) - set(world.members["a"].running)
        zookeeper.delay_requests = 1
        asyncio.get_running_loop().call_soon(delay_reading, stream)

    def delay_reading(stream: int) -> None:
        zookeeper.slow[Names().stream("default", stream)] = answered

    world.at_next("complete", hold_up)
    await world.join("b")
    await until(lambda: "complete" in world.peers.sent)
    await asyncio.sleep(2)
    stopped = len(world.epochs())
    if first == "the late release":
        done = zookeeper.deliver_delayed()
        await world.settled()
        answered.set()
    else:
        answered.set()
        await until(lambda: len(world.epochs()) == 2)
        done = zookeeper.deliver_delayed()
    await asyncio.sleep(1)

    assert stopped == 1
    assert done == [first == "the late release"]
    await world.all_closed()
    assert world.rows() == world.expected()
    assert world.read_again() == set()
    await world.end()


@virtual_time
async def test_a_recipient_that_dies_after_the_delta_costs_no_replay() -> None:
    """The stream was released to the dead recipient: the donor takes it back with the state that it froze."""
    world = await sharing(2, "a")
    await world.join("b")
    world.at_next("complete", lambda: world.strike_down("b"))

    await until(lambda: bool(world.events("release")))
    await asyncio.sleep(1)
    orphaned = len(world.epochs())
    await world.bury()
    await world.settled()
    world.fill()
    await world.committed()

    assert orphaned == 1
    assert sorted(world.epochs().values()) == [1, 2]
    await world.finish_without_replay()


@pytest.mark.parametrize(("step", "is_warm"), [("offer", False), ("complete", True)])
@virtual_time
async def test_a_donor_that_dies_before_the_release(step: str, is_warm: bool) -> None:
    """Its claims end with its ZooKeeper session; the recipient uses a complete hint, otherwise the log."""
    world = await sharing(1, "a")
    await world.join("b")
    world.members["a"].member.departure.drain("requested")
    world.at_next(step, lambda: world.strike_down("a"))

    await until(lambda: "a" in world.dead)
    await asyncio.sleep(3)
    await world.bury()
    await world.settled()

    assert world.members["b"].worker(0).is_warm == is_warm
    assert (world.read_again() == set()) == is_warm
    await world.finish()


@virtual_time
async def test_a_donor_that_dies_after_the_release_costs_no_replay() -> None:
    """The recipient already has everything that it needs."""
    world = await sharing(1, "a")
    await world.join("b")
    world.observed.after["release"] = lambda: world.strike_down("a")
    world.members["a"].member.departure.drain("requested")

    await until(lambda: "a" in world.dead)
    await world.settled()

    assert world.members["b"].worker(0).is_warm
    assert world.read_again() == set()
    await world.bury()
    await world.finish()


@pytest.mark.parametrize(("how", "wait_s", "most"), [("refuses", 4.0, 4), ("is silent", 20.0, 2)])
@virtual_time
async def test_a_member_that_does_not_accept_an_offer_gets_no_other_for_a_while(
    how: str, wait_s: float, most: int
) -> None:
    """For 2 s after a refusal and 30 s without an answer; meanwhile the donor keeps reading."""
    world = await sharing(2, "a")
    refusing = await world.join("b")
    if how == "refuses":
        refusing.member.hint_store.limits = HandoverLimits(max_held_bytes=0)
    else:
        world.peers.cut.add(("http://a", "http://b"))

    await asyncio.sleep(wait_s)

    assert 0 < len(world.peers.sent) <= most
    assert world.epochs() == {0: 1, 1: 1}
    await world.finish_without_replay()


@pytest.mark.parametrize("loss", ["before", "after"])
@virtual_time
async def test_an_unknown_commit_around_a_handover_loses_and_duplicates_nothing(
    loss: Literal["before", "after"],
) -> None:
    """A member that does not know whether its commit took effect continues from the log, not from memory."""
    world = await sharing(2, "a")

    def spoil() -> None:
        world.fill()
        world.broker.lose.append(loss)

    world.at_next("offer", spoil)
    await world.join("b")
    await until(lambda: "offer" in world.peers.sent)
    await asyncio.sleep(60)
    await world.settled()
    await world.all_closed()

    assert world.rows() == world.expected()
    await world.end()


@virtual_time
async def test_a_hung_reader_does_not_delay_a_drain() -> None:
    """The next owner reads what the hung reader did not."""
    world = await sharing(2, "a", "b")
    one = world.members["a"]
    one.log.hanging.update(one.log.readers)
    world.fill()

    took_s = await world.stop("a")
    await world.settled()

    assert took_s < 15
    await world.finish()


@pytest.mark.parametrize("loss", ["before", "after"])
@virtual_time
async def test_no_delta_extends_a_copy_from_before_an_unknown_commit(
    loss: Literal["before", "after"],
) -> None:
    """The worker has reopened its stream since the copy, perhaps at a lower position, so it copies again."""
    world = await sharing(1, "a")
    one, answered = world.members["a"], asyncio.Event()
    await world.join("b")
    world.peers.slow["offer"] = answered
    one.member.departure.drain("requested")
    await until(lambda: world.peers.sent == ["offer"])
    copied = one.worker(0).core

    world.broker.lose.append(loss)
    world.fill()
    await until(lambda: one.worker(0).core not in (copied, None))
    answered.set()
    await until(lambda: one.member.state == "drained")
    await world.settled()

    assert world.peers.sent[:2] != ["offer", "complete"]
    await world.finish()
