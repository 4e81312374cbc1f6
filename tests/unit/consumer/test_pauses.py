"""A paused group: its members keep their streams, commit, and read nothing, whoever comes and goes."""

from __future__ import annotations

import asyncio

import pytest

from services.consumer.stream.pause import GroupPause
from shared.model.names import Names
from shared.zookeeper.znodes import Create, Delete
from tests.fakes.virtual_time import until, virtual_time
from tests.logs import SETTINGS
from tests.unit.consumer.handover_world import HandoverWorld
from tests.unit.consumer.stream_world import LONG, StreamWorld

PATH = Names().pause("default")


class PausedGroup(HandoverWorld):
    """A group of two streams that can be paused."""

    def __init__(self, count: int = 2) -> None:
        super().__init__(count)

    def pause(self) -> None:
        """An operator pauses the group."""
        assert self.store.apply([Create(PATH, b"{}")], 0)

    def resume(self) -> None:
        """An operator resumes it."""
        assert self.store.apply([Delete(PATH)], 0)

    async def pause_all(self) -> None:
        """Pauses, and returns when every member knows."""
        self.pause()
        await until(lambda: all(one.member.is_paused for one in self.members.values()))

    def read(self) -> int:
        """How many records all members have read so far."""
        return sum(len(log.read) for log in self.logs)


@virtual_time
async def test_a_paused_worker_commits_what_it_has_read_and_reads_no_more() -> None:
    """Not even what arrives while it waits for records. Resumed, it goes on at once, in the same epoch."""
    world = StreamWorld(LONG)
    worker, _ = await world.running()
    world.emit("a", end=True)
    await until(lambda: worker.position == 1)
    world.context.pause.note(is_on=True)
    worker.note_pause()
    world.emit("b", end=True)
    await asyncio.sleep(60)
    paused = worker.position, world.keys(), worker.is_waiting, worker.state
    world.context.pause.note(is_on=False)
    resumed_s = asyncio.get_running_loop().time()
    await world.until_committed()

    assert paused == (1, ["a"], True, "running")
    assert asyncio.get_running_loop().time() - resumed_s < 1
    assert world.keys() == ["a", "b"]


@virtual_time
async def test_a_paused_worker_writes_no_ticks() -> None:
    """They would only wait in the log."""
    world = StreamWorld(SETTINGS)
    worker, _ = await world.running()
    world.emit("a")
    await until(lambda: worker.position == 1)
    world.context.pause.note(is_on=True)
    worker.note_pause()
    await asyncio.sleep(120)
    end = world.broker.stored(0).end
    world.context.pause.note(is_on=False)
    await until(lambda: world.keys() == ["a"])

    assert end == 1


@pytest.mark.parametrize("ask", ["stop", "freeze"])
@virtual_time
async def test_a_paused_worker_stops_at_once_without_reading(ask: str) -> None:
    """A handover or a release need not wait for the end of the pause."""
    world = StreamWorld(LONG)
    worker, ended = await world.running()
    world.emit("a", end=True)
    await until(lambda: worker.position == 1)
    world.context.pause.note(is_on=True)
    worker.note_pause()
    world.emit("b", end=True)
    await asyncio.sleep(10)
    getattr(worker, ask)()
    await until(worker.frozen.is_set, within_s=1)
    worker.stop()
    await ended

    assert worker.position == 1


@virtual_time
async def test_a_paused_group_keeps_its_claims_and_reads_nothing() -> None:
    """All members alike; after the pause everything is read, once."""
    world = PausedGroup()
    await world.join("a")
    await world.join("b")
    await world.settled()
    await world.pause_all()
    before, claims = world.read(), world.epochs()
    for stream in range(2):
        world.emit("k", stream=stream, end=True)
    await asyncio.sleep(60)

    assert (world.read(), world.epochs()) == (before, claims)
    world.resume()
    await world.finish_without_replay()


@virtual_time
async def test_a_paused_stream_moves_with_its_sessions() -> None:
    """A member that joins gets its share, warm, and reads nothing either."""
    world = PausedGroup()
    await world.join("a")
    await world.settled()
    for stream in range(2):
        world.emit("k", stream=stream)
    await until(lambda: all(worker.position == 1 for worker in world.members["a"].member.workers))
    await world.pause_all()
    world.emit("k", stream=0)
    world.emit("k", stream=1)
    await world.join("b")
    await world.settled()
    (moved,) = world.members["b"].member.workers

    assert (moved.is_warm, moved.position) == (True, 1)
    assert world.members["b"].log.read == []
    world.resume()
    await world.finish_without_replay()


@virtual_time
async def test_a_pause_survives_its_members() -> None:
    """The next ones open the streams, and read nothing before the group is resumed: not even a replay."""
    world = PausedGroup()
    await world.join("a")
    await world.settled()
    for stream in range(2):
        world.emit("k", stream=stream)
    await until(lambda: all(world.is_committed(stream) for stream in range(2)))
    await world.pause_all()
    world.store.expire(await world.kill("a"))
    b = await world.join("b")
    await until(
        lambda: len(b.member.workers) == 2 and all(one.timeline.opened.is_set() for one in b.member.workers)
    )
    await asyncio.sleep(60)

    assert b.log.read == []
    assert {worker.state for worker in b.member.workers} == {"replaying"}
    world.resume()
    await world.settled()
    await world.finish()


@virtual_time
async def test_more_streams_are_claimed_in_a_pause_than_may_be_opened_at_once() -> None:
    """A replay that waits for the end of the pause is no opening under way."""
    world = PausedGroup(count=40)
    await world.join("a")
    await world.settled()
    for stream in range(40):
        world.emit("k", stream=stream)
    await until(lambda: all(world.is_committed(stream) for stream in range(40)))
    await world.pause_all()
    world.store.expire(await world.kill("a"))
    b = await world.join("b")

    await until(lambda: len(b.member.workers) == 40)


def test_a_change_of_the_pause_is_noted_once() -> None:
    """`note` says whether the workers need to hear of it."""
    pause = GroupPause()

    assert [pause.note(is_on=is_on) for is_on in (False, True, True, False)] == [False, True, False, True]
