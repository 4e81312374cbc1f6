"""Consumers die during commits of `at_least_once` and `at_most_once`; chaos runs cover `exactly_once`.

Seeded; the seed is printed, and `BATON_TEST_SEED` replays its choices (the moments still vary).
"""

from __future__ import annotations

import random
import signal
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from shared.model.group import Delivery
from tests.e2e.fleet import SETTINGS, Fleet, fleet, new_seed
from tests.e2e.visits import Visits
from tests.reference import delivered_row, fold_eagerly

CONSUMERS = 3
FRAGMENTS = 5000
PER_S = 1000
PLACES = ("after_sessions", "before_commit", "")
"""Where an owner dies in a commit; "": at any moment."""


async def kill_an_owner(one: Fleet, rng: random.Random, place: str) -> None:
    """SIGKILL to an owner; with a place it is restarted with a second death planted there."""
    victim = rng.choice(sorted(set((await one.claimed()).values())))
    consumer = one.consumer(victim)
    consumer.signal(signal.SIGKILL)
    await consumer.ended()
    if place:
        one.start_consumer(victim, crash=f"{place}:{rng.randint(1, 4)}:SIGKILL")
        assert await consumer.ended() == -signal.SIGKILL, one.tail()
    one.start_consumer(victim)


@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
async def test_the_weaker_deliveries_keep_their_promises(
    kafka: str, zookeeper: str, namespace: str, tmp_path: Path, delivery: Delivery
) -> None:
    """at_least_once loses nothing and its copies are equal; at_most_once delivers nothing twice."""
    rng = random.Random(new_seed())
    settings = msgspec.structs.replace(SETTINGS, delivery=delivery)
    async with fleet(kafka, zookeeper, namespace, tmp_path, settings) as one:
        visits = Visits(rng)
        for index in range(CONSUMERS):
            one.start_consumer(index)
        for place in rng.sample(PLACES, len(PLACES)):
            await one.write_while(kill_an_owner(one, rng, place), visits, PER_S)
        await one.write(visits, max(0, FRAGMENTS - visits.count))

        await one.close_all()
        await one.leave()

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
