"""One worker on the in-memory log, on virtual time: lost answers, fencing, leases, stops."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from services.consumer.core.commits.turn import EMPTY_S, StreamLimits
from services.consumer.stream.fetching import LAST_FETCH_S
from services.consumer.stream.tenure import LEASE_POLL_S
from shared.model.group import Delivery, GroupSettings
from tests.fakes.log import Loss
from tests.fakes.virtual_time import until, virtual_time
from tests.unit.consumer.stream_world import LONG, StreamWorld


def with_delivery(delivery: Delivery) -> GroupSettings:
    return msgspec.structs.replace(LONG, delivery=delivery)


@pytest.mark.parametrize("loss", ["before", "between", "after"])
@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once", "at_most_once"])
@virtual_time
async def test_each_delivery_keeps_its_promise(delivery: Delivery, loss: Loss) -> None:
    """Through any failure nothing is lost, nothing is delivered twice, or both; copies have the same session
    id."""
    world = StreamWorld(with_delivery(delivery))
    world.broker.lose = [loss]
    world.start()
    for n in range(3):
        world.emit(f"k{n}", end=True)
    await world.until_committed()
    world.emit("last", end=True)

    await world.until_committed()

    ids = [session.id for session in world.delivered()]
    keys = set(world.keys())
    if delivery != "at_most_once":
        assert keys == {"k0", "k1", "k2", "last"}
    if delivery != "at_least_once":
        assert len(set(ids)) == len(ids)
    assert len(set(ids)) == len(keys)
    assert "last" in keys


@virtual_time
async def test_a_finished_session_is_delivered_with_the_next_commit() -> None:
    """Sessions, counts and the safe offset are committed together, a while after the fragments arrive."""
    world = StreamWorld(LONG)
    _, ended = world.start()
    world.emit("a")
    world.emit("b")
    world.emit("a", end=True)

    await world.until_committed()

    head = world.broker.stored(0).head
    assert head is not None
    assert (head.position, head.safe_offset, head.counts.sessions, head.counts.fragments) == (3, 1, 1, 3)
    assert world.keys() == ["a"]
    assert not ended.done()


@virtual_time
async def test_a_fenced_worker_that_lost_its_claim_writes_nothing_more() -> None:
    """Another owner has opened its sink: the first one's commit has no effect and its run ends."""
    world = StreamWorld(LONG)
    _, ended = await world.running()
    await world.log.sink(0).open()
    world.mine = False
    world.emit("a", end=True)

    assert await ended == "lost"

    assert world.broker.commits == 0


@virtual_time
async def test_a_fenced_worker_that_still_owns_continues() -> None:
    """A zombie that opens late fences the owner. The owner reopens, and nothing is lost or doubled."""
    world = StreamWorld(LONG)
    await world.running()
    await world.log.sink(0).open()

    world.emit("a", end=True)
    await world.until_committed()

    assert world.keys() == ["a"]


@virtual_time
async def test_the_head_is_read_only_after_fencing() -> None:
    """Sessions that the last owner committed just before it was fenced are not delivered again."""
    world = StreamWorld(LONG)
    last, last_ended = await world.running()
    world.emit("a", end=True)
    await until(lambda: last.position == 1)
    assert not world.is_committed()
    world.log.before_open = world.until_committed

    await world.running(epoch=2)
    last_ended.cancel()
    world.log.before_open = None
    world.emit("b", end=True)
    await world.until_committed()

    assert world.keys() == ["a", "b"]


@virtual_time
async def test_past_its_lease_it_neither_reads_nor_commits() -> None:
    """The records that it has read wait. Back in the same ZooKeeper session, it continues."""
    world = StreamWorld(LONG, StreamLimits(commit_s=0.5))
    worker, _ = await world.running()
    world.emit("a", end=True)
    await until(lambda: worker.position == 1)
    world.alive = False
    await asyncio.sleep(0.1)
    world.emit("b", end=True)
    await asyncio.sleep(30)
    paused = (world.broker.commits, worker.position <= 2)
    position = worker.position
    world.emit("c", end=True)
    await asyncio.sleep(30)
    assert worker.position == position

    world.alive = True
    await world.until_committed()

    assert paused == (0, True)
    assert world.keys() == ["a", "b", "c"]


@virtual_time
async def test_back_in_its_lease_without_the_claim_it_drops_everything() -> None:
    """The claim is read afresh before anything is written."""
    world = StreamWorld(LONG)
    _, ended = await world.running()
    world.alive = False
    world.emit("a", end=True)
    await asyncio.sleep(10 * LEASE_POLL_S)
    world.mine = False
    world.alive = True

    assert await ended == "lost"

    assert world.broker.commits == 0


@virtual_time
async def test_a_head_of_a_higher_epoch_means_that_ownership_is_lost() -> None:
    """It writes nothing, and reports the epoch that it found."""
    world = StreamWorld(LONG)
    _, ended = world.start(epoch=7)
    world.emit("a", end=True)
    await world.until_committed()
    ended.cancel()
    commits = world.broker.commits
    world.emit("b", end=True)

    late, ended = world.start(epoch=6)

    assert await ended == "outgrown"
    assert late.stored_epoch == 7
    assert world.broker.commits == commits


@virtual_time
async def test_a_stop_while_replaying_writes_nothing() -> None:
    """There is nothing to commit below the checkpoint's position, so the stored head stays as it was."""
    world = StreamWorld(LONG)
    _, ended = world.start()
    world.emit("open")
    await world.until_committed()
    ended.cancel()
    before = world.broker.stored(0).head
    assert before is not None
    assert before.safe_offset < before.position
    follower, ended = world.start(epoch=2)
    while follower.state == "opening":
        await asyncio.sleep(0)
        world.log.hanging.update(world.log.readers[1:])
    assert follower.state == "replaying"

    stopped_s = asyncio.get_running_loop().time()
    follower.stop()

    assert await ended == "stopped"
    assert asyncio.get_running_loop().time() - stopped_s < LAST_FETCH_S
    assert world.broker.stored(0).head == before
    assert follower.seq == before.seq


@virtual_time
async def test_a_stop_reads_once_more_and_a_freeze_leaves_the_commit_to_the_next_owner() -> None:
    """What arrived before the stop is in memory and, after a stop within the lease, committed."""
    world = StreamWorld(LONG, StreamLimits(commit_s=60))
    worker, ended = await world.running()
    world.emit("first", end=True)  # its commit is due at once
    await world.until_committed()

    worker.freeze()
    world.emit("a", end=True)
    await worker.frozen.wait()
    frozen = (worker.position, world.broker.commits)
    worker.stop()
    await ended
    stopping, ended = await world.running(epoch=2)
    stopping.stop()
    world.emit("b", end=True)
    await ended
    stored = world.keys()
    expired, ended = await world.running(epoch=3)
    world.emit("c", end=True)
    world.alive = False
    expired.stop()
    await ended

    assert frozen == (2, 1)
    assert stored == ["first", "a", "b"]
    assert world.keys() == stored


@pytest.mark.parametrize("loss", [None, "before", "after"])
@virtual_time
async def test_a_stop_commits_what_was_read_and_loses_nothing(loss: Loss | None) -> None:
    """If the outcome of the last commit is unknown, the next owner sees it in the stored head."""
    world = StreamWorld(LONG, StreamLimits(commit_s=60))
    worker, ended = await world.running()
    world.emit("a", end=True)
    await until(lambda: worker.position == 1)
    world.broker.lose = [loss] if loss else []

    worker.stop()
    assert await ended == "stopped"
    stored = world.keys()
    world.start(epoch=2)
    world.emit("b", end=True)
    await world.until_committed()

    assert stored == ([] if loss == "before" else ["a"])
    assert world.keys() == ["a", "b"]


@virtual_time
async def test_a_reader_that_hangs_is_replaced_at_once_while_an_empty_stream_waits() -> None:
    """With nothing open, a worker waits long for records: the watchdog must not have to wait for it."""
    world = StreamWorld(LONG)
    worker, ended = await world.running()
    await asyncio.sleep(EMPTY_S / 2)
    readers, loop = len(world.log.readers), asyncio.get_running_loop()
    asked_s = loop.time()
    worker.reopen()
    await until(lambda: len(world.log.readers) > readers)
    ended.cancel()

    assert loop.time() - asked_s < 1
