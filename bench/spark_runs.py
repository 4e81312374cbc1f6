"""A run over a small log: with a driver that starts, and with one that waits.

`python -m bench spark-runs`. The first run of a job in a driver that waited meets a JVM that has not compiled
this job yet, so it has its own row. Before each round of warm runs a small batch of new sessions arrives, as
between two runs of a schedule. Beside the time stands the CPU time of the driver's processes, which other
work on the machine disturbs less.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from bench.report import Row
from services.control.core.runs.run import Run
from tests.spark import BEGAN_MS, Pipeline, closed_log
from tests.spark_control import Control

FRAGMENTS = 30_000
KEYS = 3_000
NEW_FRAGMENTS = 300
NEW_KEYS = 30
ROUNDS = 5
ROUND_MS = 3_600_000
"""How much later, by the clients' clocks, each batch begins."""
JOBS = ("lake", "reports", "audit")


@dataclass(frozen=True, slots=True)
class Taken:
    """What runs of one kind took, each."""

    wall_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)

    def rows(self, name: str, target: str = "") -> list[Row]:
        """Their rows."""
        return [
            Row(name=name, unit="s", baton=self.wall_s, baseline=[], target=target),
            Row(name=f"{name}, CPU", unit="s", baton=self.cpu_s, baseline=[], target=""),
        ]


class Arrivals:
    """Lets fragments arrive, and the sessions that they make."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._delivered: set[str] = set()
        self._began_ms = BEGAN_MS

    async def bring(self, fragments: int, keys: int) -> None:
        """Appends so many fragments of these keys, and delivers their sessions."""
        await self._pipeline.send(closed_log(fragments, keys, step_ms=1, began_ms=self._began_ms))
        self._began_ms += ROUND_MS
        sessions, positions = await self._pipeline.sessions()
        new = [(one.key.encode(), value) for one, value in sessions if one.id not in self._delivered]
        assert len(new) == keys
        await self._pipeline.deliver(new)
        await self._pipeline.commit(positions)
        self._delivered.update(one.id for one, _ in sessions)


def run(kafka: str, zookeeper: str) -> list[Row]:
    """The rows; `kafka` and `zookeeper` are addresses of running servers."""
    with tempfile.TemporaryDirectory(prefix="baton-bench-") as home:
        return asyncio.run(_run(Path(home), kafka, zookeeper))


async def _run(home: Path, kafka: str, zookeeper: str) -> list[Row]:
    pipeline = Pipeline(kafka=kafka, namespace="bench-spark-runs")
    await pipeline.create()
    arrivals = Arrivals(pipeline)
    await arrivals.bring(FRAGMENTS, KEYS)
    cold, first, warm = ({job: Taken() for job in JOBS} for _ in range(3))
    async with httpx.AsyncClient() as http:
        control = Control(home, kafka, zookeeper, pipeline.namespace, http)
        await _measure(control, "lake", cold["lake"])
        for number in range(1 + ROUNDS):
            if number:
                await arrivals.bring(NEW_FRAGMENTS, NEW_KEYS)
            for job in JOBS:
                last = await _measure(control, job, warm[job] if number else first[job])
        for job in ("reports", "audit"):
            await control.end_driver(last)
            await arrivals.bring(NEW_FRAGMENTS, NEW_KEYS)
            last = await _measure(control, job, cold[job])
        await control.runner.stop()
    name = f"run over {FRAGMENTS:,} fragments"
    rows = []
    for job in JOBS:
        rows += cold[job].rows(f"{name}: {job}, cold")
    for job in JOBS:
        rows += first[job].rows(f"{name}: {job}, its first warm run", "≤ 5")
    for job in JOBS:
        rows += warm[job].rows(f"{name}, {NEW_FRAGMENTS} of them new: {job}, warm", "≤ 5")
    return rows


async def _measure(control: Control, job: str, taken: Taken) -> Run:
    begun = await control.begin(job)
    before_s = _cpu_s(begun.pid) if begun.is_handed_over else 0.0
    run = await control.ended(begun)
    taken.wall_s.append(_seconds(run))
    taken.cpu_s.append(_cpu_s(run.pid) - before_s)
    return run


def _seconds(run: Run) -> float:
    if run.state != "succeeded" or run.ended_at is None:
        raise RuntimeError(f"run {run.id} of {run.job} ended as {run.state}: {run.error}")
    return (run.ended_at - run.started_at) / 1000


def _cpu_s(group: int) -> float:
    """The CPU time of a process group so far, with that of children that have ended."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        if int(fields[2]) == group:
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")
