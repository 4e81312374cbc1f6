"""A member with a thousand streams leaves, on real servers; prints how many moved live, and for how long."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest

from shared.model.events import Event, parse_event
from tests.e2e.fleet import SETTINGS, Fleet, fleet, new_seed
from tests.e2e.readers import judge
from tests.e2e.visits import Visits
from tests.topics import records_of

STREAMS = 1_000
RELEASE_S = 20.0
"""The default of BATON_RELEASE_S."""
PER_S = 500


async def handovers(one: Fleet) -> list[Event]:
    """All that were reported so far."""
    records = await records_of(one.where.kafka, one.where.names.events)
    return [event for event in (parse_event(record.value) for record in records) if event.kind == "handover"]


@pytest.mark.soak
@pytest.mark.timeout(600)
async def test_a_drain_of_a_thousand_streams_loses_nothing(
    kafka: str, zookeeper: str, namespace: str, tmp_path: Path
) -> None:
    """Under load, to a single recipient. What its time does not suffice for is replayed."""
    visits = Visits(random.Random(new_seed()))
    async with fleet(kafka, zookeeper, namespace, tmp_path, SETTINGS, streams=STREAMS) as one:
        one.environment |= {"BATON_ZOOKEEPER_TIMEOUT_S": "10", "BATON_RELEASE_S": str(RELEASE_S)}
        one.start_consumer(0)
        await one.claimed()
        await one.write(visits, 5 * STREAMS)
        one.start_consumer(1)
        await one.ready("consumer-1")

        async def leave() -> None:
            leaving = one.consumer(0)
            began_s = time.monotonic()
            leaving.signal(signal.SIGTERM)
            assert await leaving.ended() == 0
            print(f"{STREAMS} streams left within {time.monotonic() - began_s:.1f} s")
            await one.claimed(without=0)

        await one.write_while(leave(), visits, PER_S)
        await one.close_all()
        await one.leave()
        assert await judge(one.where, SETTINGS, await one.where.delivered()) == []
        moved = await handovers(one)
        pauses = sorted(event.pause_ms or 0 for event in moved)
        late = one.consumer(0).logged("drain timed out")
        print(f"{sum(len(line['streams']) for line in late)} were left to the time-out")
        print(f"{len(moved)} handovers, {sum(bool(event.warm) for event in moved)} live")
        print(f"pauses: median {pauses[len(pauses) // 2]:.0f}, longest {pauses[-1]:.0f} ms")
