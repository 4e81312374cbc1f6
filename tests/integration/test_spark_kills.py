"""SIGKILL to a driver or to control at any moment of a job: the next run makes everything right.

Three cells of the matrix run in every CI; `make kill-matrix` runs all. Executors are killed in
`test_spark_cluster.py`.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from services.control.core.runs import Run
from shared.model.names import DEFAULT_GROUP, Names
from shared.zookeeper.connection import ZooKeeper
from tests.spark import Pipeline, fragment
from tests.spark_control import Control

KEYS = 7
FRAGMENTS = 350
MINUTE_MS = 60_000
BEGAN_MS = 1_700_000_000_000
IN_CI = (("lake", "commit", "driver"), ("lake", "batch", "control"), ("audit", "lock", "driver"))
JOBS = ("lake", "reports", "audit")
MOMENTS = ("lock", "batch", "commit", "result")
VICTIMS = ("driver", "control")
CELLS = [
    pytest.param(*cell, marks=[] if cell in IN_CI else [pytest.mark.soak])
    for cell in itertools.product(JOBS, MOMENTS, VICTIMS)
    if cell[:2] != ("audit", "commit")  # it writes no table
]
STEP_S = 0.01
LIMIT_S = 200.0


class Moments:
    """Whether a moment of a job has come."""

    def __init__(self, control: Control, job: str, znodes: ZooKeeper, names: Names) -> None:
        self._control = control
        self._job = job
        self._znodes = znodes
        self._lock = names.run_lock(DEFAULT_GROUP, job)
        self._commits = self._count()

    async def wait(self, moment: str, run: Run) -> None:
        """Returns at this moment, or when the run has ended before anybody saw it."""
        has_come: dict[str, Callable[[], Any]] = {
            "lock": lambda: self._znodes.get(self._lock),
            "batch": self._is_active,
            "commit": self._has_committed,
            "result": lambda: self._control.store.has_result(run.id),
        }
        async with asyncio.timeout(LIMIT_S):
            while not self._control.runner.run_of(run.id).has_ended:
                found = has_come[moment]()
                if await found if asyncio.iscoroutine(found) else found:
                    return
                await asyncio.sleep(STEP_S)
                await self._control.runner.step()

    def _is_active(self) -> bool:
        return any(run.progress.active for run in self._control.runner.runs() if not run.has_ended)

    def _has_committed(self) -> bool:
        return self._count() > self._commits

    def _count(self) -> int:
        """Commits of all tables so far."""
        return sum(1 for _ in Path(self._control.lake).rglob("_delta_log/*.json"))


@pytest.mark.parametrize(("job", "moment", "victim"), CELLS)
async def test_a_kill_at_any_moment_changes_nothing(
    job: str, moment: str, victim: str, kafka: str, zookeeper: str, namespace: str, tmp_path: Path
) -> None:
    """A killed driver's run fails, and the next does its work; a killed control's run goes on without it."""
    pipeline = Pipeline(kafka=kafka, namespace=namespace)
    await pipeline.create()
    await pipeline.send([fragment(f"k{n % KEYS}", BEGAN_MS + n * MINUTE_MS) for n in range(FRAGMENTS)])
    await pipeline.send([(None, b'{"time": %d}' % (BEGAN_MS + FRAGMENTS * MINUTE_MS))])
    sessions, positions = await pipeline.sessions()
    records = [(session.key.encode(), value) for session, value in sessions]
    async with httpx.AsyncClient() as http, ZooKeeper(zookeeper, 10.0) as znodes:
        control = Control(tmp_path, kafka, zookeeper, namespace, http)
        if job == "reports":
            await pipeline.deliver(records[: len(records) // 2])
            assert (await control.done("lake")).state == "succeeded"
            assert (await control.done("reports")).state == "succeeded"
            await pipeline.deliver(records[len(records) // 2 :])
            assert (await control.done("lake")).state == "succeeded"
        else:
            await pipeline.deliver(records)
        await pipeline.commit(positions)
        moments = Moments(control, job, znodes, pipeline.names)
        run = await control.begin(job)

        await moments.wait(moment, run)
        killed: list[Control] = []
        if victim == "driver":
            os.killpg(control.runner.run_of(run.id).pid, signal.SIGKILL)
        else:
            killed.append(control)
            control = Control(tmp_path, kafka, zookeeper, namespace, http)  # finds the run of the one before
        ended = await control.ended(run)
        again = await control.done(job)
        result = control.runner.result_of(again.id)
        for one in (control, *killed):
            await one.runner.stop()

    assert again.state == "succeeded", control.log(again)
    if victim == "control":
        assert ended.state == "succeeded", control.log(ended)
    assert counted(job, result) == len(records)


def counted(job: str, result: dict[str, Any]) -> int:
    """The sessions in the table or the report, or those that the audit found right."""
    if job == "reports":
        return sum(day["sessions"] for day in result["days"])
    return int(result["judged"] if result.get("verdict") == "exact" else result["sessions"])
