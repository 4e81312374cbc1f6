"""A run over a small log: with a driver that starts, and with one that waits.

`python -m bench spark-runs`. The first run of a job in a driver that waited meets a JVM that has not compiled
this job yet, so it has its own row.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import httpx

from bench.report import Row
from services.control.core.runs import Run
from tests.spark import Pipeline, closed_log
from tests.spark_control import Control

FRAGMENTS = 30_000
KEYS = 3_000
ROUNDS = 5
JOBS = ("lake", "reports", "audit")


def run(kafka: str, zookeeper: str) -> list[Row]:
    """The rows; `kafka` and `zookeeper` are addresses of running servers."""
    with tempfile.TemporaryDirectory(prefix="baton-bench-") as home:
        return asyncio.run(_run(Path(home), kafka, zookeeper))


async def _run(home: Path, kafka: str, zookeeper: str) -> list[Row]:
    pipeline = Pipeline(kafka=kafka, namespace="bench-spark-runs")
    await pipeline.create()
    await pipeline.send(closed_log(FRAGMENTS, KEYS, step_ms=1))
    await pipeline.deliver_all()
    warm: dict[str, list[float]] = {job: [] for job in JOBS}
    async with httpx.AsyncClient() as http:
        control = Control(home, kafka, zookeeper, pipeline.namespace, http)
        cold = [_seconds(await control.done("lake"))]
        first = {job: _seconds(await control.done(job)) for job in JOBS}
        for _ in range(ROUNDS):
            for job in JOBS:
                warm[job].append(_seconds(await control.done(job)))
        await control.runner.stop()
    name = f"run over {FRAGMENTS:,} fragments"
    return [
        Row(name=f"{name}: lake, cold", unit="s", baton=cold, baseline=[], target=""),
        *(
            Row(name=f"{name}: {job}, its first warm run", unit="s", baton=[took], baseline=[], target="≤ 5")
            for job, took in first.items()
        ),
        *(
            Row(name=f"{name}: {job}, warm", unit="s", baton=took, baseline=[], target="≤ 5")
            for job, took in warm.items()
        ),
    ]


def _seconds(run: Run) -> float:
    if run.state != "succeeded" or run.ended_at is None:
        raise RuntimeError(f"run {run.id} of {run.job} ended as {run.state}: {run.error}")
    return (run.ended_at - run.started_at) / 1000
