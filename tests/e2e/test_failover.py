"""Consumers are killed under load: others have their streams at once, or their own next process has.

On real servers. The logs of the others say that they did not wait for the ZooKeeper time-out.
"""

from __future__ import annotations

import asyncio
import random
import signal
from pathlib import Path

from tests.e2e.fleet import SETTINGS, Fleet, fleet, new_seed
from tests.e2e.readers import judge
from tests.e2e.visits import Visits

PER_S = 500
FRAGMENTS = 4000
TIMEOUT_S = 10
"""Of a ZooKeeper session: longer than a connection takes to be refused twice, on a busy machine, too."""


async def kill(one: Fleet, index: int) -> None:
    """SIGKILL: its ZooKeeper session lives on."""
    one.consumer(index).signal(signal.SIGKILL)
    assert await one.consumer(index).ended() == -signal.SIGKILL


def log_of(one: Fleet) -> str:
    """What all consumers have logged."""
    return "".join(path.read_text() for path in sorted(one.home.glob("consumer-*.log")))


async def judged(one: Fleet, visits: Visits) -> list[str]:
    """What is wrong with the sessions in the end."""
    await one.write(visits, max(0, FRAGMENTS - visits.count))
    await one.close_all()
    await one.leave()
    return await judge(one.where, SETTINGS, await one.where.delivered())


async def ends(one: Fleet) -> dict[int, int]:
    """Stream → the last offset of its log."""
    return {stream: len(await one.where.log(stream)) - 1 for stream in range(one.where.streams)}


async def test_the_streams_of_killed_consumers_are_read_by_others_before_the_time_out(
    kafka: str, zookeeper: str, namespace: str, tmp_path: Path
) -> None:
    """One after the other, under load; every session is delivered once."""
    visits = Visits(random.Random(new_seed()))
    async with fleet(kafka, zookeeper, namespace, tmp_path, SETTINGS, streams=6) as one:
        one.environment["BATON_ZOOKEEPER_TIMEOUT_S"] = str(TIMEOUT_S)
        for index in range(4):
            one.start_consumer(index)
        await asyncio.gather(*[one.ready(f"consumer-{index}") for index in range(4)])

        async def kill_two() -> None:
            for index in (0, 1):
                await one.claimed(by=index)
                await asyncio.sleep(1.5)  # beyond the time in which a new member claims only what is new
                await kill(one, index)
                await one.claimed(without=index)
                await one.committed(await ends(one))

        await one.write_while(kill_two(), visits, PER_S)

        assert log_of(one).count("member suspected") >= 2
        assert await judged(one, visits) == []


async def test_a_consumer_that_is_killed_and_started_again_has_its_streams_at_once(
    kafka: str, zookeeper: str, namespace: str, tmp_path: Path
) -> None:
    """Nobody else is there to claim them; it ends what its predecessor left, and waits for no time-out."""
    visits = Visits(random.Random(new_seed()))
    async with fleet(kafka, zookeeper, namespace, tmp_path, SETTINGS, streams=3) as one:
        one.environment["BATON_ZOOKEEPER_TIMEOUT_S"] = str(TIMEOUT_S)
        one.start_consumer(0)
        await one.claimed()

        async def kill_twice() -> None:
            for _ in range(2):
                await asyncio.sleep(1)
                await kill(one, 0)
                one.start_consumer(0)
                await one.ready("consumer-0")
                await one.committed(await ends(one))

        await one.write_while(kill_twice(), visits, PER_S)

        assert log_of(one).count("predecessor has ended") == 2
        assert await judged(one, visits) == []


async def test_a_consumer_that_starts_again_while_others_suspect_it_doubles_nothing(
    kafka: str, zookeeper: str, namespace: str, tmp_path: Path
) -> None:
    """Others replace its claims while its next process ends what it left; each is killed once, under load."""
    visits = Visits(random.Random(new_seed()))
    async with fleet(kafka, zookeeper, namespace, tmp_path, SETTINGS, streams=6) as one:
        one.environment["BATON_ZOOKEEPER_TIMEOUT_S"] = str(TIMEOUT_S)
        for index in range(3):
            one.start_consumer(index)
        await asyncio.gather(*[one.ready(f"consumer-{index}") for index in range(3)])

        async def kill_each() -> None:
            for index in range(3):
                await one.claimed(by=index)
                await kill(one, index)
                one.start_consumer(index)
                await one.committed(await ends(one))

        await one.write_while(kill_each(), visits, PER_S)

        assert await judged(one, visits) == []
