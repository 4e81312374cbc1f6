"""A process asks any broker about the cluster; one that is silent must not hold it up."""

from __future__ import annotations

import asyncio

import pytest

from shared.kafka.cluster import NEXT_BROKER_S, Cluster
from tests.fakes.kafka import FakeKafka
from tests.fakes.virtual_time import virtual_time


@pytest.mark.parametrize("silent", [1, 2, 3])
@virtual_time
async def test_a_silent_broker_is_asked_last(silent: int) -> None:
    """It costs one question a moment; the next ones go to others first, until it is the last that is left."""
    kafka, loop = FakeKafka(3), asyncio.get_running_loop()
    kafka.create("a")
    async with Cluster("fake:1", kafka.connect) as cluster:
        await cluster.refresh({"a"})
        kafka.muted.add(silent)
        took_s = []
        for _ in range(4):
            began_s = loop.time()
            await cluster.refresh({"a"})
            took_s.append(loop.time() - began_s)
        kafka.muted = {1, 2, 3} - {silent}
        kafka.wake()
        await cluster.refresh({"a"})

    assert took_s[0] < NEXT_BROKER_S + 0.1
    assert max(took_s[1:]) < 0.1
