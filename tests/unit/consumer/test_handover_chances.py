"""Handovers among members that come and go, with messages, answers and commits lost at random."""

from __future__ import annotations

import asyncio
import random

import pytest

from tests.fakes.virtual_time import in_virtual_time
from tests.unit.consumer.handover_world import HandoverWorld


@pytest.mark.parametrize("seed", range(6))
def test_whatever_is_lost_every_session_is_delivered_once(seed: int) -> None:
    """Moves begin all the time, any message of them may be lost: the fold gives the same, each once."""

    async def test() -> None:
        rng = random.Random(seed)
        world = HandoverWorld(5)
        await world.join("m0")
        for n in range(50):
            for _ in range(rng.randrange(6)):
                world.emit(f"k{rng.randrange(9)}", stream=rng.randrange(5), end=rng.random() < 0.3, id=str(n))
            await asyncio.sleep(rng.choice([0.05, 0.5, 1, 3]))
            name, kind = f"m{rng.randrange(4)}", rng.random()
            world.peers.lose += rng.choices([None, "request", "answer"], [6, 1, 1], k=3)
            if name not in world.members:
                await world.join(name)
                continue
            zookeeper = world.members[name].coordinator.zookeeper
            if kind < 0.4:
                await world.stop(name)
            elif kind < 0.5:
                world.store.expire(world.members[name].session_id)
            elif kind < 0.6:
                world.strike_down(name)
                await world.bury()
            elif kind < 0.7:
                zookeeper.lose_answers += 1
            elif kind < 0.8:
                zookeeper.delay_requests += 1
            elif kind < 0.9:
                zookeeper.deliver_delayed()
            else:
                world.broker.lose.append(rng.choice(["before", "after"]))
        await world.join("last")

        await world.settled()
        world.close_all(5)
        await world.committed()

        assert world.rows() == world.expected()
        assert any(event.warm for event in world.events("handover"))
        await world.end()

    in_virtual_time(test)
