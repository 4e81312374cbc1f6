"""One worker on the in-memory log, on virtual time: lost answers, fencing, leases, silence, stops."""

from __future__ import annotations

import asyncio
import random

import msgspec
import pytest

from services.consumer.core.stream import TICK_EVERY_S, StreamLimits
from services.consumer.status import stream_status
from services.consumer.stream_worker import LEASE_POLL_S
from shared.group import Delivery, GroupSettings
from shared.heads import Head
from tests.fakes.log import Loss
from tests.fakes.virtual_time import in_virtual_time, until
from tests.logs import SETTINGS, random_log
from tests.unit.consumer.stream_world import StreamWorld

LONG = GroupSettings(repeat_ms=0)
"""The real defaults: half an hour of silence ends a session."""


def with_delivery(delivery: Delivery) -> GroupSettings:
    return msgspec.structs.replace(LONG, delivery=delivery)


def test_a_finished_session_is_delivered_with_the_next_commit() -> None:
    """Sessions, counts and the safe offset are committed together, some time after the fragments came."""

    async def test() -> None:
        world = StreamWorld(LONG)
        _, ended = world.start()
        world.say("a")
        world.say("b")
        world.say("a", end=True)

        await world.until_committed()

        head = world.broker.stored(0).head
        assert head is not None
        assert (head.position, head.safe_offset, head.counts.sessions, head.counts.fragments) == (3, 1, 1, 3)
        assert world.keys() == ["a"]
        assert not ended.done()
        ended.cancel()

    in_virtual_time(test)


def test_a_stop_commits_what_was_read() -> None:
    """An orderly end leaves nothing to replay but open sessions."""

    async def test() -> None:
        world = StreamWorld(LONG, StreamLimits(commit_s=60))
        worker, ended = world.start()
        await until(lambda: worker.state == "running")
        world.say("a", end=True)
        await until(lambda: worker.position == 1)

        worker.stop()

        assert await ended == "stopped"
        assert world.keys() == ["a"]
        assert worker.seq == 1

    in_virtual_time(test)


@pytest.mark.parametrize("loss", ["before", "after"])
def test_after_an_unknown_outcome_it_goes_on_from_the_stored_head(loss: Loss) -> None:
    """Whether the commit took effect or not, its sessions are delivered once."""

    async def test() -> None:
        world = StreamWorld(LONG)
        world.broker.lose = [loss]
        _, ended = world.start()
        for n in range(5):
            world.say(f"k{n}", end=True)
            world.say("open")

        await world.until_committed()

        assert world.keys() == [f"k{n}" for n in range(5)]
        assert world.broker.lose == []
        ended.cancel()

    in_virtual_time(test)


@pytest.mark.parametrize("seed", range(60))
def test_random_losses_change_no_session(seed: int) -> None:
    """Random logs, lost commits, fencing and stops: exactly the sessions of one eager fold."""

    async def test() -> None:
        rng = random.Random(seed)
        world = StreamWorld(
            SETTINGS, StreamLimits(commit_s=0.2, max_replay_fragments=rng.choice([4, 12, 100]))
        )
        epoch = 1
        worker, ended = world.start(epoch)
        for record in random_log(rng, 80):
            world.broker.append(0, record.key, record.value, record.timestamp)
            if rng.random() < 0.2:
                world.broker.lose.append(rng.choice(["before", "after"]))
            if rng.random() < 0.1:
                await world.log.sink(0).open()  # fences the worker's
            if rng.random() < 0.1:
                worker.stop() if rng.random() < 0.5 else ended.cancel()
                await asyncio.wait([ended])
                epoch += 1
                worker, ended = world.start(epoch)
            await asyncio.sleep(rng.choice([0, 0.01, 0.3]))
        world.broker.append(0, None, b'{"time":9000000000000}', 0)
        await world.until_committed()

        assert world.rows() == world.expected()
        ended.cancel()

    in_virtual_time(test)


def test_a_fenced_worker_that_lost_its_claim_writes_nothing_more() -> None:
    """Another owner has opened its sink: the first one's commit has no effect and its run ends."""

    async def test() -> None:
        world = StreamWorld(LONG)
        worker, ended = world.start()
        await until(lambda: worker.state == "running")
        await world.log.sink(0).open()
        world.mine = False
        world.say("a", end=True)

        assert await ended == "lost"

        assert world.broker.commits == 0

    in_virtual_time(test)


def test_a_fenced_worker_that_still_owns_goes_on() -> None:
    """A zombie that opened late fences the owner: it opens again, and nothing is lost or doubled."""

    async def test() -> None:
        world = StreamWorld(LONG)
        worker, ended = world.start()
        await until(lambda: worker.state == "running")
        await world.log.sink(0).open()

        world.say("a", end=True)
        await world.until_committed()

        assert world.keys() == ["a"]
        ended.cancel()

    in_virtual_time(test)


def test_past_its_lease_it_neither_reads_nor_commits() -> None:
    """What it had read waits; back in the same ZooKeeper session it goes on."""

    async def test() -> None:
        world = StreamWorld(LONG, StreamLimits(commit_s=0.5))
        worker, ended = world.start()
        await until(lambda: worker.state == "running")
        world.say("a", end=True)
        await until(lambda: worker.position == 1)
        world.alive = False
        await asyncio.sleep(0.1)
        world.say("b", end=True)
        await asyncio.sleep(30)
        paused = (world.broker.commits, worker.position <= 2)
        position = worker.position
        world.say("c", end=True)
        await asyncio.sleep(30)
        assert worker.position == position

        world.alive = True
        await world.until_committed()

        assert paused == (0, True)
        assert world.keys() == ["a", "b", "c"]
        ended.cancel()

    in_virtual_time(test)


def test_back_in_its_lease_without_the_claim_it_drops_everything() -> None:
    """The claim is read afresh before anything is written."""

    async def test() -> None:
        world = StreamWorld(LONG)
        worker, ended = world.start()
        await until(lambda: worker.state == "running")
        world.alive = False
        world.say("a", end=True)
        await asyncio.sleep(10 * LEASE_POLL_S)
        world.mine = False
        world.alive = True

        assert await ended == "lost"

        assert world.broker.commits == 0

    in_virtual_time(test)


def test_a_head_of_a_higher_epoch_means_that_ownership_is_lost() -> None:
    """It writes nothing; the epoch that it found is there for the member to see."""

    async def test() -> None:
        world = StreamWorld(LONG)
        _, ended = world.start(epoch=7)
        world.say("a", end=True)
        await world.until_committed()
        ended.cancel()
        commits = world.broker.commits
        world.say("b", end=True)

        late, ended = world.start(epoch=6)

        assert await ended == "lost"
        assert late.stored_epoch == 7
        assert world.broker.commits == commits

    in_virtual_time(test)


def test_a_stop_while_replaying_writes_nothing() -> None:
    """Below the checkpoint's position there is nothing to commit: the stored head stays as it was."""

    async def test() -> None:
        world = StreamWorld(LONG)
        _, ended = world.start()
        world.say("open")
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

        follower.stop()

        assert await ended == "stopped"
        assert world.broker.stored(0).head == before
        assert follower.seq == before.seq

    in_virtual_time(test)


@pytest.mark.parametrize("loss", [None, "before", "after"])
def test_a_stop_in_the_midst_of_a_commit_loses_nothing(loss: Loss | None) -> None:
    """The commit ends or its outcome is unknown; the next owner goes on from what is stored."""

    async def test() -> None:
        world = StreamWorld(LONG)
        worker, ended = world.start()
        await until(lambda: worker.state == "running")
        world.say("a", end=True)
        await until(lambda: worker.position == 1)
        world.broker.lose = [loss] if loss else []

        worker.stop()
        assert await ended == "stopped"
        _, ended = world.start(epoch=2)
        world.say("b", end=True)
        await world.until_committed()

        assert world.keys() == ["a", "b"]
        ended.cancel()

    in_virtual_time(test)


def test_a_silent_stream_closes_its_last_sessions_by_a_tick() -> None:
    """By its own clock the owner thinks a session idle: the tick's append time closes it."""

    async def test() -> None:
        world = StreamWorld(LONG)
        _, ended = world.start()
        world.say("a")

        await asyncio.sleep(LONG.idle_ms / 1000 + 2 * TICK_EVERY_S + 10)

        ticks = [record for record in world.broker.stored(0).log if record.key is None]
        assert world.keys() == ["a"]
        assert world.delivered()[0].reason == "gap"
        assert len(ticks) == 1
        ended.cancel()

    in_virtual_time(test)


def test_ticks_are_few_and_only_for_open_sessions() -> None:
    """A wrong clock of the member's costs a tick every few seconds and no more; without one, none."""

    async def test() -> None:
        world = StreamWorld(LONG)
        _, ended = world.start()
        await asyncio.sleep(3600)
        assert world.broker.stored(0).log == []
        world.broker.now_ms = lambda: 5  # the broker's clock stands still, so no tick closes anything
        world.say("a")

        await asyncio.sleep(3600)

        ticks = len(world.broker.stored(0).log) - 1
        assert 60 < ticks <= 3600 / TICK_EVERY_S
        assert world.keys() == []
        ended.cancel()

    in_virtual_time(test)


@pytest.mark.parametrize("loss", ["before", "between", "after"])
@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once", "at_most_once"])
def test_each_delivery_keeps_its_promise(delivery: Delivery, loss: Loss) -> None:
    """Whatever a failure takes: nothing lost, nothing twice, or both; copies carry the same session id."""

    async def test() -> None:
        world = StreamWorld(with_delivery(delivery))
        world.broker.lose = [loss]
        _, ended = world.start()
        for n in range(3):
            world.say(f"k{n}", end=True)
        await world.until_committed()
        world.say("last", end=True)

        await world.until_committed()

        ids = [session.id for session in world.delivered()]
        keys = set(world.keys())
        if delivery != "at_most_once":
            assert keys == {"k0", "k1", "k2", "last"}
        if delivery != "at_least_once":
            assert len(set(ids)) == len(ids)
        assert len(set(ids)) == len(keys)
        assert "last" in keys
        ended.cancel()

    in_virtual_time(test)


@pytest.mark.parametrize("seed", range(5))
def test_parking_keeps_every_replay_below_its_bound(seed: int) -> None:
    """However long sessions stay open, position − safe offset never passes the bound in a stored head."""

    async def test() -> None:
        rng = random.Random(seed)
        bound = 100
        world = StreamWorld(LONG, StreamLimits(commit_s=0.5, max_replay_fragments=bound))
        _, ended = world.start()
        spans = []
        for n in range(600):
            world.say("long")
            world.say(f"k{rng.randrange(40)}", end=rng.random() < 0.3, id=str(n))
            if n % 10 == 0:
                await asyncio.sleep(0.3)
                head = world.broker.stored(0).head
                spans.append(head.position - head.safe_offset if head else 0)

        await world.until_committed()
        ended.cancel()
        follower, ended = world.start(epoch=2)
        await until(lambda: follower.state == "running")

        assert 0 < max(spans) <= bound
        assert follower.core is not None
        assert len(follower.core.assembler.open["long"].data) == 600
        ended.cancel()

    in_virtual_time(test)


def test_a_log_that_was_lost_stops_the_stream() -> None:
    """The log ends below the position: state rewind, nothing written, until it is stopped."""

    async def test() -> None:
        world = StreamWorld(LONG)
        stored = world.broker.stored(0)
        head = Head(epoch=1, seq=4, position=50, safe_offset=50)
        worker = world.worker(epoch=2)
        stored.head = None
        world.say("a", end=True)
        stored.head = msgspec.structs.replace(head, ck=0, last=0)
        stored.records[0] = _whole(head)
        ended = asyncio.ensure_future(worker.run())
        await until(lambda: worker.state == "rewind")
        await asyncio.sleep(100)

        row = stream_status(worker)
        worker.stop()

        assert await ended == "stopped"
        assert (row["state"], row["position"], row["committed"]) == ("rewind", 50, 50)
        assert (world.broker.commits, world.broker.sessions) == (0, [])

    in_virtual_time(test)


def test_a_checkpoint_that_cannot_be_read_stops_the_stream() -> None:
    """Nothing may be written over it; an operator decides."""

    async def test() -> None:
        world = StreamWorld(LONG)
        stored = world.broker.stored(0)
        stored.head = Head(epoch=1, seq=4, position=0, safe_offset=0, ck=0, last=0)
        stored.records[0] = b"\xff"

        worker, ended = world.start(epoch=2)
        await until(lambda: worker.state == "rewind")
        worker.stop()

        assert await ended == "stopped"
        assert world.broker.commits == 0

    in_virtual_time(test)


def test_what_retention_cut_is_counted_and_the_stream_goes_on() -> None:
    """The log starts above the safe offset: reading goes on at its start."""

    async def test() -> None:
        world = StreamWorld(LONG)
        _, ended = world.start()
        for n in range(10):
            world.say(f"k{n}")
        await world.until_committed()
        ended.cancel()
        world.broker.retain_from(0, 4)

        follower, ended = world.start(epoch=2)
        world.close_all()
        await world.until_committed()

        assert stream_status(follower)["cut"] == 4
        assert world.keys() == [f"k{n}" for n in range(4, 10)]
        ended.cancel()

    in_virtual_time(test)


def test_records_that_cannot_be_read_are_set_aside_and_counted() -> None:
    """Poison has no other effect; the last one is told."""

    async def test() -> None:
        world = StreamWorld(LONG)
        worker, ended = world.start()
        world.say("a")
        world.broker.append(0, b"a", b"poison")
        world.broker.append(0, None, b"poison")
        world.broker.append(0, b"b", b'{"key":"another"}')
        world.say("a", end=True)

        await world.until_committed()

        row = stream_status(worker)
        assert world.delivered()[0].fragments == 2
        assert row["counts"]["unreadable"] == 3
        assert row["last_unreadable"][0] == 3
        ended.cancel()

    in_virtual_time(test)


def test_a_reader_that_hangs_is_replaced_in_place() -> None:
    """The new one goes on at the same position; nothing is committed anew or read twice."""

    async def test() -> None:
        world = StreamWorld(LONG)
        worker, ended = world.start()
        world.say("a")
        await world.until_committed()
        world.log.hanging.add(world.log.readers[0])
        await asyncio.sleep(10)
        world.say("a", end=True)
        await asyncio.sleep(10)
        assert worker.position == 1

        worker.replace_reader()
        await world.until_committed()

        assert world.delivered()[0].fragments == 2
        assert len(world.log.readers) == 2
        ended.cancel()

    in_virtual_time(test)


def test_a_mute_broker_is_survived() -> None:
    """While nothing answers it tries again and again; then it goes on from the stored head."""

    async def test() -> None:
        world = StreamWorld(LONG)
        _, ended = world.start()
        world.say("a", end=True)
        await world.until_committed()
        world.broker.mute = True
        world.say("b", end=True)
        await asyncio.sleep(300)
        world.broker.mute = False

        await world.until_committed()

        assert world.keys() == ["a", "b"]
        ended.cancel()

    in_virtual_time(test)


def test_the_status_of_a_stream_tells_where_it_stands() -> None:
    """Committed values come from the head, live ones from the fold."""

    async def test() -> None:
        world = StreamWorld(LONG)
        worker, ended = world.start(epoch=3)
        opening = stream_status(worker)
        world.say("a", data="x")
        world.say("b", end=True)
        await world.until_committed()
        world.say("c")
        await until(lambda: worker.position == 3)

        row = stream_status(worker)

        assert (opening["state"], opening["position"]) == ("opening", -1)
        assert (row["stream"], row["epoch"], row["state"]) == (0, 3, "running")
        assert (row["position"], row["end"], row["committed"], row["safe_offset"]) == (3, 3, 2, 0)
        assert (row["open_sessions"], row["covered"], row["seq"], row["cut"]) == (2, 1, 1, 0)
        assert row["counts"]["fragments"] == 3
        assert row["committed_at"] > 0
        ended.cancel()

    in_virtual_time(test)


def _whole(head: Head) -> bytes:
    """The record of an empty checkpoint."""
    return msgspec.msgpack.encode({"head": head, "begins": True, "ends": True})
