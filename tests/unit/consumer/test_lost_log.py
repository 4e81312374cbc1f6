"""A log that lost its end and grew past the position again: the record before the position shows it."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from services.consumer.member.status import stream_status
from shared.model.head import parse_head
from shared.model.sessions import session_id
from tests.fakes.virtual_time import until, virtual_time
from tests.unit.consumer.group_world import GroupWorld
from tests.unit.consumer.stream_world import LONG, StreamWorld


async def committed_world() -> StreamWorld:
    """A world in which an owner of epoch 1 has committed four sessions, and has gone."""
    world = StreamWorld(LONG)
    _, ended = world.start()
    for n in range(4):
        world.emit(f"k{n}", end=True)
    await world.until_committed()
    ended.cancel()
    await asyncio.sleep(1)
    return world


def replace_end(world: StreamWorld, keep: int, more: int) -> None:
    """The log keeps its first `keep` records, and others follow them."""
    world.broker.lose_end(0, keep)
    for n in range(more):
        world.emit(f"new{n}", end=True)


@pytest.mark.parametrize("keep", [0, 2, 3])
@virtual_time
async def test_a_log_that_was_lost_and_grew_past_the_position_stops_the_stream(keep: int) -> None:
    """The offsets are there again, but the records are others: an operator decides."""
    world = await committed_world()
    replace_end(world, keep, 7)

    worker, ended = world.start(epoch=2)
    await until(lambda: worker.state == "rewind" or len(world.keys()) > 4)
    await asyncio.sleep(10)

    assert worker.state == "rewind", f"it went on and delivered {world.keys()}"
    assert world.keys() == ["k0", "k1", "k2", "k3"]
    assert worker.retries.why.startswith("the record at 3 was appended at ")
    assert world.broker.commits == 1
    ended.cancel()


@virtual_time
async def test_a_log_that_grew_again_only_to_the_position_is_recognized_too() -> None:
    """No record is above the position, so nothing but the one before it can show anything."""
    world = await committed_world()
    replace_end(world, 2, 2)

    worker, ended = world.start(epoch=2)

    await until(lambda: worker.state == "rewind")
    ended.cancel()


@virtual_time
async def test_a_log_that_is_lost_between_two_fetches_stops_a_running_stream() -> None:
    """The reader connects anew and repeats the last record."""
    world = StreamWorld(LONG)
    worker, ended = await world.start_committed(4)

    await asyncio.sleep(1)
    replace_end(world, 2, 7)
    await until(lambda: worker.state == "rewind")

    assert world.keys() == ["k0", "k1", "k2", "k3"]
    assert len(world.log.readers) == 1
    ended.cancel()


@virtual_time
async def test_a_log_that_is_lost_during_a_pause_stops_the_stream() -> None:
    """Past its lease a member reads nothing; afterwards it looks at the last record again."""
    world = StreamWorld(LONG)
    worker, ended = await world.start_committed(4)
    world.alive = False
    await asyncio.sleep(20)
    link = world.broker.stored(0).link
    replace_end(world, 2, 7)
    world.broker.stored(0).link = link  # nothing shows it to the reader

    world.alive = True
    await until(lambda: worker.state == "rewind")

    assert world.keys() == ["k0", "k1", "k2", "k3"]
    ended.cancel()


@virtual_time
async def test_records_that_are_lost_before_they_were_committed_are_forgotten() -> None:
    """The stored head is still true of the log: the stream goes on from there, and no session is lost."""
    world = await committed_world()
    world.commit_s = 60.0
    worker, ended = world.start(epoch=2)
    world.emit("half")
    await until(lambda: worker.position == 5)
    await asyncio.sleep(1)
    replace_end(world, 4, 3)

    await world.until_committed()

    assert worker.state == "running"
    assert world.keys() == ["k0", "k1", "k2", "k3", "new0", "new1", "new2"]
    ended.cancel()


@virtual_time
async def test_an_end_below_memory_but_not_below_the_head_is_no_loss() -> None:
    """What the owner had read beyond the stored head was not committed."""
    world = await committed_world()
    world.commit_s = 60.0
    worker, ended = world.start(epoch=2)
    world.emit("half")
    await until(lambda: worker.position == 5)
    world.broker.lose_end(0, 4)
    worker.reopen()

    await until(lambda: worker.state == "running" and worker.position == 4)
    world.emit("new", end=True)
    await world.until_committed()

    assert world.keys() == ["k0", "k1", "k2", "k3", "new"]
    ended.cancel()


@virtual_time
async def test_an_owner_says_that_retention_has_removed_the_record(caplog: pytest.LogCaptureFixture) -> None:
    """It goes on, because a stream that was quiet for longer than the retention is the usual reason."""
    world = await committed_world()
    world.broker.retain_from(0, 4)

    worker, ended = world.start(epoch=2)
    await until(lambda: worker.state == "running")
    compared = stream_status(worker)["log_compared"]
    world.emit("new", end=True)
    await world.until_committed()

    assert compared == "gone"
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == [
        "log not compared"
    ]
    assert world.keys() == ["k0", "k1", "k2", "k3", "new"]
    ended.cancel()


@virtual_time
async def test_a_head_of_an_earlier_version_is_taken_as_it_is() -> None:
    """It does not know the append time, so nothing can be compared until the next commit."""
    world = await committed_world()
    stored = world.broker.stored(0)
    assert stored.head is not None
    old = stored.head.metadata().replace(f'"appended":{stored.head.appended},', "")
    stored.head = parse_head(stored.head.safe_offset, old)
    assert stored.head.appended == -1

    worker, ended = world.start(epoch=2)
    await until(lambda: worker.state == "running" and worker.core is not None)
    await asyncio.sleep(1)
    compared = stream_status(worker)["log_compared"]
    world.emit("new", end=True)
    await world.until_committed()

    assert compared == "unknown"
    assert stored.head.appended == stored.log[-1].timestamp
    ended.cancel()


@virtual_time
async def test_the_same_log_is_recognized() -> None:
    """The status says so, and no record is folded twice."""
    world = await committed_world()
    worker, ended = world.start(epoch=2)
    await until(lambda: worker.state == "running")
    await asyncio.sleep(1)

    assert stream_status(worker)["log_compared"] == "same"
    assert worker.counts.fragments == 4
    ended.cancel()


@virtual_time
async def test_a_stream_that_is_started_over_gives_its_sessions_other_ids() -> None:
    """The same keys at the same offsets: no id of the log that was lost comes again."""
    world = await committed_world()
    world.broker.lose_end(0, 0)
    for n in range(5):
        world.emit(f"k{n}", end=True)
    worker, ended = world.start(epoch=2)
    await until(lambda: worker.state == "rewind")
    ended.cancel()
    world.broker.start_over(0)

    _, ended = world.start(epoch=3)
    await world.until_committed()

    before, after = world.delivered()[:4], world.delivered()[4:]
    log = after[0].log
    assert [session.id for session in before] == [session_id("default", 0, f"k{n}", n) for n in range(4)]
    assert [session.id for session in after] == [session_id("default", 0, f"k{n}", n, log) for n in range(5)]
    assert len({session.id for session in world.delivered()}) == 9
    head = world.broker.stored(0).head
    assert head is not None
    assert head.log == log > 0
    assert msgspec.json.decode(head.metadata())["log"] == log
    ended.cancel()


@virtual_time
async def test_a_member_reports_each_stream_that_stops_for_an_operator() -> None:
    """Also one that ran well until then; the event says why."""
    world = GroupWorld(LONG, 2)
    await world.join("a")
    await world.settled()
    for n in range(4):
        world.emit(f"k{n}", end=True)
    await world.committed()
    await asyncio.sleep(1)
    replace_end(world, 2, 7)

    await until(lambda: any(event.kind == "rewind" for event in world.event_sink.events))
    await world.end()

    event = next(event for event in world.event_sink.events if event.kind == "rewind")
    assert (event.stream, event.epoch, event.member) == (0, 1, "a")
    assert str(event.why).startswith("the record at 3 was appended at ")
