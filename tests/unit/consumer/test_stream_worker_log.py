"""One worker and what its log does: silence, long sessions, loss, retention, poison, hanging readers."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from services.consumer.core.commits.ticks import TICK_EVERY_S
from services.consumer.member.status import stream_status
from shared.model.head import Head
from tests.fakes.virtual_time import until, virtual_time
from tests.unit.consumer.stream_world import LONG, StreamWorld


@virtual_time
async def test_a_silent_stream_closes_its_last_sessions_by_a_tick() -> None:
    """By its own clock the owner finds a session idle and appends a tick. The tick's append time closes
    it."""
    world = StreamWorld(LONG)
    world.start()
    world.emit("a")

    await asyncio.sleep(LONG.idle_ms / 1000 + 2 * TICK_EVERY_S + 10)

    ticks = [record for record in world.broker.stored(0).log if record.key is None]
    assert world.keys() == ["a"]
    assert world.delivered()[0].reason == "gap"
    assert len(ticks) == 1


@virtual_time
async def test_ticks_are_few_and_only_for_open_sessions() -> None:
    """If the member's clock is wrong, that costs a tick every few seconds. Without open sessions there are
    none."""
    world = StreamWorld(LONG)
    world.start()
    await asyncio.sleep(3600)
    assert world.broker.stored(0).log == []
    world.broker.now_ms = lambda: 5  # the broker's clock stands still, so no tick closes anything
    world.emit("a")

    await asyncio.sleep(3600)

    ticks = len(world.broker.stored(0).log) - 1
    assert 60 < ticks <= 3600 / TICK_EVERY_S
    assert world.keys() == []


@pytest.mark.parametrize(
    ("position", "is_readable"), [(50, True), (0, False)], ids=["log lost", "checkpoint unreadable"]
)
@virtual_time
async def test_what_only_an_operator_can_decide_stops_the_stream(position: int, is_readable: bool) -> None:
    """The log ends below the position, or the checkpoint cannot be read: the worker stays in `rewind`, and
    writes nothing until it is stopped."""
    world = StreamWorld(LONG)
    stored = world.broker.stored(0)
    head = Head(epoch=1, seq=4, position=position, safe_offset=position, checkpoint_from=0, newest=0)
    stored.head, stored.records[0] = head, whole(head) if is_readable else b"\xff"
    world.emit("a", end=True)
    stored.next_record = 2
    worker, ended = world.start(epoch=2)
    await until(lambda: worker.state == "rewind")
    await asyncio.sleep(100)

    row = stream_status(worker)
    worker.stop()

    assert await ended == "stopped"
    assert row["state"] == "rewind"
    assert not is_readable or (row["position"], row["committed"]) == (50, 50)
    assert (world.broker.commits, world.broker.sessions) == (0, [])


@virtual_time
async def test_records_cut_by_retention_are_counted_and_the_stream_continues() -> None:
    """The log starts above the safe offset: reading continues at its start."""
    world = StreamWorld(LONG)
    _, ended = world.start()
    for n in range(10):
        world.emit(f"k{n}")
    await world.until_committed()
    ended.cancel()
    world.broker.retain_from(0, 4)

    follower, ended = world.start(epoch=2)
    world.close_all()
    await world.until_committed()

    assert stream_status(follower)["cut"] == 4
    assert world.keys() == [f"k{n}" for n in range(4, 10)]


@virtual_time
async def test_records_that_cannot_be_read_are_set_aside_and_counted() -> None:
    """They have no other effect. The status shows the last one."""
    world = StreamWorld(LONG)
    worker, _ = world.start()
    world.emit("a")
    world.broker.append(0, b"a", b"poison")
    world.broker.append(0, None, b"poison")
    world.broker.append(0, b"b", b'{"key":"another"}')
    world.emit("a", end=True)

    await world.until_committed()

    row = stream_status(worker)
    assert world.delivered()[0].fragments == 2
    assert row["counts"]["unreadable"] == 3
    assert row["last_unreadable"][0] == 3


@virtual_time
async def test_a_reader_that_hangs_is_replaced() -> None:
    """The next life continues from memory at the same position: nothing is committed anew or read twice."""
    world = StreamWorld(LONG)
    worker, _ = world.start()
    world.emit("a")
    await world.until_committed()
    world.log.hanging.add(world.log.readers[0])
    await asyncio.sleep(10)
    world.emit("a", end=True)
    await asyncio.sleep(10)
    assert worker.position == 1

    worker.reopen()
    await world.until_committed()

    assert world.delivered()[0].fragments == 2
    assert world.log.read == [(0, 0), (0, 1)]
    assert len(world.log.readers) == 2


@virtual_time
async def test_a_mute_broker_is_survived() -> None:
    """It retries until the broker answers, and continues from the stored head."""
    world = StreamWorld(LONG)
    world.start()
    world.emit("a", end=True)
    await world.until_committed()
    world.broker.mute = True
    world.emit("b", end=True)
    await asyncio.sleep(300)
    world.broker.mute = False

    await world.until_committed()

    assert world.keys() == ["a", "b"]


@virtual_time
async def test_a_log_that_is_lost_under_a_running_worker_stops_its_stream() -> None:
    """When offsets that it has read come again, it writes nothing more: an operator decides."""
    world = StreamWorld(LONG)
    worker, ended = await world.start_committed(4)

    world.broker.stored(0).log.clear()
    for _ in range(2):
        world.emit("new", end=True)
        await asyncio.sleep(1)
    await until(lambda: worker.state == "rewind")

    assert not ended.done()
    assert world.keys() == ["k0", "k1", "k2", "k3"]


@virtual_time
async def test_bounds_older_than_the_head_do_not_look_like_a_lost_log() -> None:
    """An earlier owner may read and commit while its successor opens."""
    world = StreamWorld(LONG)
    world.start(epoch=1)
    world.emit("a", end=True)
    await world.until_committed()

    async def the_earlier_owner_continues() -> None:
        world.log.before_open = None
        await asyncio.sleep(0.1)  # the successor knows the log's bounds by now
        world.emit("b", end=True)
        await world.until_committed()

    world.log.before_open = the_earlier_owner_continues
    worker, _ = world.start(epoch=2)
    await until(lambda: worker.state != "opening")
    world.emit("c", end=True)
    await world.until_committed()

    assert worker.state == "running"
    assert world.keys() == ["a", "b", "c"]


@virtual_time
async def test_the_status_of_a_stream_shows_its_progress() -> None:
    """Committed values come from the head, live values from the fold."""
    world = StreamWorld(LONG)
    worker, _ = world.start(epoch=3)
    opening = stream_status(worker)
    world.emit("a", data="x")
    world.emit("b", end=True)
    await world.until_committed()
    world.emit("c")
    await until(lambda: worker.position == 3)

    row = stream_status(worker)

    assert (opening["state"], opening["position"]) == ("opening", -1)
    assert (row["stream"], row["epoch"], row["state"]) == (0, 3, "running")
    assert (row["position"], row["end"], row["committed"], row["safe_offset"]) == (3, 3, 2, 0)
    assert (row["open_sessions"], row["covered"], row["seq"], row["cut"]) == (2, 1, 1, 0)
    assert row["counts"]["fragments"] == 3
    assert row["committed_at"] > 0


def whole(head: Head) -> bytes:
    """The record of an empty checkpoint."""
    return msgspec.msgpack.encode({"head": head, "begins": True, "ends": True})
