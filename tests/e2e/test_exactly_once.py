"""Consumers die and freeze at the worst moments: what a `read_committed` reader sees stays exact.

Seeded; the seed is printed, and `BATON_TEST_SEED` replays its choices (the moments still vary).
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from pathlib import Path

import pytest

from shared.group import GroupSettings
from tests.e2e.fleet import Fleet, Visits, fleet
from tests.e2e.readers import judge

SETTINGS = GroupSettings(
    gap_ms=60_000,
    lateness_ms=10_000,
    idle_ms=3_600_000,
    repeat_ms=3_600_000,
    max_session_fragments=40,
)
CONSUMERS = 3
PER_S = 600
PLACES = ("before_offsets", "before_commit", "after_commit")


def new_seed() -> int:
    """The seed of this run, printed."""
    seed = int(os.environ.get("BATON_TEST_SEED", random.SystemRandom().randrange(1_000_000)))
    print(f"BATON_TEST_SEED={seed}")
    return seed


async def kill_at_random(one: Fleet, rng: random.Random) -> None:
    """An owner dies at any moment; sometimes it is back before anybody has noticed."""
    claims = await one.until_claimed()
    await asyncio.sleep(rng.random())
    victim = rng.choice(sorted(set(claims.values())))
    await one.kill(victim)
    if rng.random() < 0.5:
        await one.until_claimed(without=victim)
    one.start(victim)


async def kill_in_commit(one: Fleet, rng: random.Random, where: str) -> None:
    """An owner dies at a place in the midst of a commit: it is started with that end planted."""
    claims = await one.until_claimed()
    victim = rng.choice(sorted(set(claims.values())))
    await one.kill(victim)
    one.start(victim, crash=f"{where}:{rng.randint(1, 8)}")
    await one.died(victim)
    one.start(victim)


async def freeze(one: Fleet, rng: random.Random) -> None:
    """An owner stands still until others own its streams, and then goes on as if nothing had been."""
    claims = await one.until_claimed()
    await asyncio.sleep(rng.random())
    zombie = rng.choice(sorted(set(claims.values())))
    one.signal(zombie, signal.SIGSTOP)
    await one.until_claimed(without=zombie)
    one.signal(zombie, signal.SIGCONT)
    await one.until_owning(zombie)
    assert one.is_running(zombie), one.told()


async def torment(one: Fleet, rng: random.Random, fragments: int, deaths: int, zombies: int) -> None:
    """Writes the fragments while owners die and freeze; every stream is written to all along."""
    visits = Visits(rng)
    for index in range(CONSUMERS):
        one.start(index)
    planted = [PLACES[n % len(PLACES)] for n in range(deaths // 3)]
    steps = [*planted, *["random"] * (deaths - 2 * len(planted)), *["zombie"] * zombies]
    rng.shuffle(steps)
    for step in steps:
        if step == "zombie":
            doing = freeze(one, rng)
        elif step == "random":
            doing = kill_at_random(one, rng)
        else:
            doing = kill_in_commit(one, rng, step)
        await one.write_while(doing, visits, PER_S)
    await one.write(visits, max(0, fragments - visits.count))
    assert one.deaths >= deaths


@pytest.mark.parametrize(
    ("fragments", "deaths", "zombies"),
    [(20_000, 5, 1), pytest.param(120_000, 24, 5, marks=pytest.mark.soak)],
)
async def test_every_fragment_is_in_exactly_one_session(
    kafka: str, zookeeper: str, namespace: str, tmp_path: Path, fragments: int, deaths: int, zombies: int
) -> None:
    """Owners killed at random and between send and commit, and zombies, change nothing in the output."""
    rng = random.Random(new_seed())
    async with fleet(kafka, zookeeper, namespace, tmp_path, SETTINGS) as one:
        await torment(one, rng, fragments, deaths, zombies)

        await one.close_all()
        await one.stop()

        assert await judge(one.where, SETTINGS, await one.where.delivered()) == []
