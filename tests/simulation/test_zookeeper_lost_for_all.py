"""ZooKeeper is lost for everybody: all pause in time, and go on where they were; nobody evacuates."""

from __future__ import annotations

import asyncio

import pytest

from tests.simulation.verdict import is_quiet
from tests.simulation.world import World

STREAMS = 5


def owners(world: World) -> dict[int, str]:
    """Which process reads which stream."""
    return {
        worker.stream: process.name
        for process in world.processes.values()
        if process.member is not None
        for worker in process.member.workers
        if worker.state == "running"
    }


async def until_quiet(world: World) -> None:
    """Returns when every stream is read and all is committed; fails after a virtual minute."""
    deadline_s = world.loop.now_s + 60
    while not is_quiet(world):
        assert world.loop.now_s < deadline_s, owners(world)
        await asyncio.sleep(0.1)


async def members_at_work(world: World) -> None:
    """Three members that share the streams and have open sessions."""
    for name in "abc":
        world.start(name)
    for stream in range(STREAMS):
        world.append(stream, {"key": "k"})
    await asyncio.sleep(5)
    await until_quiet(world)


async def everybody_stops(world: World) -> None:
    """Kills what runs."""
    for process in list(world.processes.values()):
        world.kill(process)
    await asyncio.gather(*world.killed, return_exceptions=True)


@pytest.mark.parametrize("down_s", [0.5, 2.0, 4.0, 20.0])
def test_servers_that_are_gone_for_a_while_change_no_owner(down_s: float) -> None:
    """The ZooKeeper sessions outlive the outage, and so do the claims."""
    for seed in range(5):
        world = World(seed=seed, streams=STREAMS)

        async def course(world: World = world) -> tuple[dict[int, str], dict[int, str]]:
            await members_at_work(world)
            before = owners(world)
            world.ensemble.is_down = True
            await asyncio.sleep(down_s)
            world.ensemble.come_back()
            for stream in range(STREAMS):
                world.append(stream, {"key": "k", "end": True})
            await until_quiet(world)
            after = owners(world)
            await everybody_stops(world)
            return before, after

        before, after = world.loop.run(course())

        assert before == after
        assert world.wrong == world.broker.wrong == []


@pytest.mark.parametrize("down_s", [0.0, 4.0])
def test_when_every_zookeeper_session_is_over_each_takes_its_own_again(down_s: float) -> None:
    """Who comes back first waits for the others, and what was open is still in memory."""
    for seed in range(5):
        world = World(seed=seed, streams=STREAMS)

        async def course(world: World = world) -> tuple[dict[int, str], dict[int, str]]:
            await members_at_work(world)
            before = owners(world)
            world.ensemble.is_down = True
            await asyncio.sleep(down_s)
            world.ensemble.come_back()
            for session in sorted(world.ensemble.store.sessions):
                world.ensemble.end(session, "killed")
            for stream in range(STREAMS):
                world.append(stream, {"key": "k", "end": True})
            await asyncio.sleep(1)
            await until_quiet(world)
            after = owners(world)
            await everybody_stops(world)
            return before, after

        before, after = world.loop.run(course())

        assert before == after
        assert world.wrong == world.broker.wrong == []
        warm = [event.warm for event in world.events if event.kind == "claim"]
        assert warm[-STREAMS:] == [True] * STREAMS
