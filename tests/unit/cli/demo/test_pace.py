"""How fast a demo's import goes, and when its incidents begin."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from cli.demo.pace import Pace
from cli.http.receipts import Receipt


@settings(max_examples=50)
@given(st.integers(8, 1_000), st.integers(1, 4))
def test_an_incident_finds_its_quarter_and_leaves_the_rest_behind(lines: int, lanes: int) -> None:
    """Incident n begins with n quarters in Kafka; until it is over, at most another eighth and the requests
    that were under way follow, however long it lasts. In the end every line is posted, once.
    """
    pace = Pace(lines, pause_s=0)
    kafka: list[int] = []
    seen: list[tuple[int, int]] = []

    async def run() -> None:
        async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
            tasks.create_task(incidents())
            for lane in range(lanes):
                tasks.create_task(import_part(pace, kafka, range(lane, lines, lanes)))

    async def incidents() -> None:
        for _ in range(3):
            async with pace.incident():
                begun = len(kafka)
                # everything that may run has run by then
                for _ in range(4 * lines):
                    await asyncio.sleep(0)
                seen.append((begun, len(kafka)))

    asyncio.run(run())

    for quarter, (begun, ended) in enumerate(seen, 1):
        assert 4 * begun >= quarter * lines
        assert 8 * (ended - pace.batch) <= (2 * quarter + 1) * lines
    assert sorted(kafka) == list(range(lines))


async def test_a_failed_incident_does_not_hold_the_import_back() -> None:
    """After `release` nobody waits for incidents that never come."""
    pace = Pace(1_000)
    kafka: list[int] = []

    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        tasks.create_task(import_part(pace, kafka, range(1_000)))
        try:
            async with pace.incident():
                raise ZeroDivisionError
        except ZeroDivisionError:
            await pace.release()

    assert kafka == list(range(1_000))


async def import_part(pace: Pace, kafka: list[int], numbers: range) -> None:
    """One lane: posts these lines in order, in requests of the pace's size."""

    async def post(body: bytes) -> Receipt:
        await asyncio.sleep(0)
        lines = body.split(b"\n")
        kafka.extend(map(int, lines))
        return Receipt(accepted=len(lines))

    paced = pace.around(post)
    for first in range(0, len(numbers), pace.batch):
        await paced(b"\n".join(b"%d" % n for n in numbers[first : first + pace.batch]))
