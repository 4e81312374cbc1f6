"""Consumers die and freeze at the worst moments: what a `read_committed` reader sees stays exact.

Seeded; the seed is printed, and `BATON_TEST_SEED` replays its choices (the moments still vary).
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from shared.model.group import Delivery, GroupSettings
from tests.e2e.fleet import Fleet, Visits, fleet
from tests.e2e.readers import judge
from tests.reference import delivered_row, fold_eagerly

SETTINGS = GroupSettings(
    gap_ms=60_000,
    lateness_ms=10_000,
    idle_ms=3_600_000,
    repeat_ms=3_600_000,
    max_session_fragments=40,
)
CONSUMERS = 3
PER_S = 1000
PLACES = ("before_offsets", "before_commit", "after_commit")
ZOMBIES = ("zombie", "zombie in a commit")


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
    one.start(victim, crash=f"{where}:{rng.randint(1, 4)}:SIGKILL")
    await one.died(victim)
    one.start(victim)


async def freeze(one: Fleet, rng: random.Random, where: str | None) -> None:
    """An owner stands still until others own its streams, and then goes on as if nothing had been.

    At any moment, or (`where`) in the midst of a commit: it is started anew with that planted.
    """
    claims = await one.until_claimed()
    zombie = rng.choice(sorted(set(claims.values())))
    if where is None:
        await asyncio.sleep(rng.random())
        one.signal(zombie, signal.SIGSTOP)
    else:
        await one.kill(zombie)
        one.start(zombie, crash=f"{where}:{rng.randint(1, 4)}:SIGSTOP")
    await one.stopped(zombie)
    await one.until_claimed(without=zombie)
    one.signal(zombie, signal.SIGCONT)
    await one.until_owning(zombie)
    assert one.is_running(zombie), one.told()


def steps_for(deaths: int, zombies: int) -> list[str]:
    """What is to happen: a death in a commit costs two, the other before it plants it."""
    planted = [PLACES[n % len(PLACES)] for n in range(deaths // 3)]
    frozen = [ZOMBIES[n % len(ZOMBIES)] for n in range(zombies)]
    return [*planted, *["random"] * (deaths - 2 * len(planted)), *frozen]


async def torment(one: Fleet, rng: random.Random, fragments: int, steps: list[str]) -> None:
    """Writes the fragments while owners die and freeze; every stream is written to all along."""
    visits = Visits(rng)
    for index in range(CONSUMERS):
        one.start(index)
    rng.shuffle(steps)
    for number, step in enumerate(steps, start=1):
        if step in ZOMBIES:
            doing = freeze(one, rng, None if step == ZOMBIES[0] else "before_commit")
        elif step == "random":
            doing = kill_at_random(one, rng)
        else:
            doing = kill_in_commit(one, rng, step)
        await one.write_while(doing, visits, PER_S)
        await one.write(visits, max(0, fragments * number // len(steps) - visits.count))


@pytest.mark.parametrize(
    ("fragments", "deaths", "zombies"),
    [(20_000, 5, 2), pytest.param(120_000, 24, 6, marks=pytest.mark.soak)],
)
async def test_every_fragment_is_in_exactly_one_session(
    kafka: str, zookeeper: str, namespace: str, tmp_path: Path, fragments: int, deaths: int, zombies: int
) -> None:
    """Owners killed at random and between send and commit, and zombies, change nothing in the output."""
    rng = random.Random(new_seed())
    async with fleet(kafka, zookeeper, namespace, tmp_path, SETTINGS) as one:
        await torment(one, rng, fragments, steps_for(deaths, zombies))

        assert one.deaths >= deaths
        await one.close_all()
        await one.stop()

        assert await judge(one.where, SETTINGS, await one.where.delivered()) == []


@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
async def test_the_weaker_deliveries_keep_their_promises(
    kafka: str, zookeeper: str, namespace: str, tmp_path: Path, delivery: Delivery
) -> None:
    """at_least_once loses nothing and its copies are equal; at_most_once gives nothing twice."""
    rng = random.Random(new_seed())
    settings = msgspec.structs.replace(SETTINGS, delivery=delivery)
    async with fleet(kafka, zookeeper, namespace, tmp_path, settings) as one:
        await torment(one, rng, 5000, ["after_sessions", "before_commit", "random"])

        await one.close_all()
        await one.stop()

        delivered = Counter((session.id, delivered_row(session)) for session in await one.where.delivered())
        expected = {
            session.row()
            for stream in range(one.where.streams)
            for session in fold_eagerly(await one.where.log(stream), settings)[0]
        }
    rows = {row for _, row in delivered}
    assert rows <= expected
    assert len({id_ for id_, _ in delivered}) == len(rows)
    if delivery == "at_least_once":
        assert rows == expected
    else:
        assert set(delivered.values()) == {1}
        assert len(expected - rows) < len(expected) / 4
