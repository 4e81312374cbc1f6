"""What rolling restarts of a group cost its streams under a steady load, on real servers, with all defaults.

Three members get SIGTERM and start again, one after another, each after the group is balanced again. A
standstill is any time in which a stream gets no new record, so it includes the normal interval of reading.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

from bench.failover import is_caught_up
from bench.group import Group, is_balanced, now_ms
from bench.report import Row
from bench.trace import pauses_ms, standstill_ms

STREAMS, RATE = 24, 5_000.0
OPEN_BYTES = 1_500_000
"""Per stream."""
RESTARTS = 5


def run(kafka: str, zookeeper: str) -> list[Row]:
    """Takes about 3 minutes."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # it logs errors while topics are created
    return asyncio.run(_measure(kafka, zookeeper))


async def _measure(kafka: str, zookeeper: str) -> list[Row]:
    seconds: list[float] = []
    standstills: list[float] = []
    pauses: list[float] = []
    moves: list[float] = []
    async with Group(kafka, zookeeper, "bench-restarts", STREAMS, {}) as group:
        for name in "abc":
            group.start(name)
        group.start_load(RATE, OPEN_BYTES)
        await group.until(lambda rows: is_balanced(rows) and is_caught_up(rows))
        await asyncio.sleep(2)  # lets the last clients settle; a measurement, not a synchronisation
        for _ in range(RESTARTS):
            began_ms, since = now_ms(), len(group.events)
            await _restart_all(group)
            ended_ms = now_ms()
            lines = [line for line in group.trace() if line.at_ms <= ended_ms]
            claims = Counter(event.stream for event in group.events[since:] if event.kind == "claim")
            seconds.append((ended_ms - began_ms) / 1000)
            standstills.append(standstill_ms(lines, began_ms, ended_ms))
            pauses += [pause for n in range(STREAMS) for pause in pauses_ms(lines, n, began_ms)]
            moves += [float(claims[n]) for n in range(STREAMS)]
    return [
        _row(f"rolling restart of 3 members, {RESTARTS} times: all of it", "s", seconds),
        _row("the same, longest standstill of any stream", "ms", standstills, "≤ 250"),
        _row("the same, pause of a stream at a move", "ms", pauses),
        _row("the same, moves per stream", "", moves),
    ]


async def _restart_all(group: Group) -> None:
    for name in "abc":
        await group.stop(name)
        group.start(name)
        await group.until_balanced()
    await asyncio.sleep(1)  # so that a pause at the end shows up


def _row(name: str, unit: str, values: list[float], target: str = "") -> Row:
    return Row(name=name, unit=unit, baton=values, baseline=[], target=target)
