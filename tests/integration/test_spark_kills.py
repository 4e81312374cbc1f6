"""SIGKILL to a driver or to control at any moment of a job: the next run makes everything right.

The moments: the driver has the lock; Spark has begun its tasks (`batch`); files are written that no commit
names yet; a commit is made; the result is written, and control has not seen it.

Three cells of the matrix run in every CI; `make kill-matrix` runs all. These combinations do not exist:

* `audit` at `files` and `commit`: it writes no table.
* A commit without its checkpoint: a table has no checkpoint beside it; a commit is both. What was deleted
  or restored instead is in `test_spark_lake_losses.py`.
* An executor: with a local master the driver is the only one. `test_spark_cluster.py` kills those of a
  cluster.

A control is killed here by forgetting it: nothing of it goes on but the driver, and the next one has the
same folder. `test_control_process.py` sends SIGKILL to its process.
"""

from __future__ import annotations

import asyncio
import datetime
import itertools
import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from deltalake import DeltaTable

from services.control.adapters import spark_progress
from services.control.core.runs import Run
from shared.model.names import DEFAULT_GROUP, Names
from shared.zookeeper.connection import ZooKeeper
from tests.lake import DAY_MS, NOON_MS, session_record
from tests.spark import Pipeline, closed_log
from tests.spark_control import Control
from tests.tables import write_old_sessions

KEYS = 7
FRAGMENTS = 350
DAYS = 3
MINUTE_MS = 60_000
IN_CI = (("lake", "commit", "driver"), ("lake", "files", "control"), ("audit", "lock", "driver"))
JOBS = {"lake": "", "reports": "", "audit": "", "maintain": "OPTIMIZE", "rewrite": "WRITE"}
"""Each with the operation whose commit is the moment `commit`; "" for any.

`rewrite` is `maintain` on a table of Baton before `layout` 2, which has two groups.
"""
MOMENTS = ("lock", "batch", "files", "commit", "result")
VICTIMS = ("driver", "control")
CELLS = [
    pytest.param(*cell, marks=[] if cell in IN_CI else [pytest.mark.soak])
    for cell in itertools.product(JOBS, MOMENTS, VICTIMS)
    if cell[0] != "audit" or cell[1] not in ("files", "commit")  # it writes no table
]
GROUPS = (DEFAULT_GROUP, "other")
STEP_S = 0.01
TASK_THREAD = "Executor task l"
"""What Linux keeps of the name "Executor task launch worker"."""
LIMIT_S = 200.0


class Moments:
    """Whether a moment of a job has come. `operation`: of the commits that count, or "" for all."""

    def __init__(self, control: Control, lock: str, operation: str, znodes: ZooKeeper) -> None:
        self._control = control
        self._lock = lock
        self._operation = operation
        self._znodes = znodes
        self._commits, self._files = self._count_commits(), self._count_files()
        self._ticks = task_threads()

    async def wait(self, moment: str, run: Run) -> bool:
        """Returns True at this moment, or False when the run has ended before anybody saw it."""
        has_come: dict[str, Callable[[], Any]] = {
            "lock": lambda: self._znodes.get(self._lock),
            "batch": lambda: self._has_begun(run),
            "files": lambda: self._count_files() > self._files,
            "commit": lambda: self._count_commits() > self._commits,
            "result": lambda: self._control.store.has_result(run.id),
        }
        async with asyncio.timeout(LIMIT_S):
            while not self._control.runner.run_of(run.id).has_ended:
                found = has_come[moment]()
                if await found if asyncio.iscoroutine(found) else found:
                    return True
                await asyncio.sleep(STEP_S)
                await self._control.runner.step()
        return False

    def _has_begun(self, run: Run) -> bool:
        """Whether Spark has begun the run's tasks; what it says itself comes too late for a short run."""
        group = self._control.runner.run_of(run.id).pid
        return any(ticks > self._ticks.get(task, 0) for task, ticks in task_threads(group).items())

    def _count_files(self) -> int:
        """Files with rows of all tables, whether or not a commit names them."""
        return sum(1 for _ in Path(self._control.lake).rglob("part-*.parquet"))

    def _count_commits(self) -> int:
        """Commits of all tables so far."""
        wanted = f'"operation":"{self._operation}"' if self._operation else ""
        logs = Path(self._control.lake).rglob("_delta_log/*.json")
        return sum(1 for log in logs if not wanted or wanted in log.read_text())


def task_threads(group: int | None = None) -> dict[str, int]:
    """The CPU time of the threads that work on Spark's tasks, in ticks; of one process group, or of all."""
    found = {}
    for thread in Path("/proc").glob("[0-9]*/task/*/stat"):
        try:
            number, _, rest = thread.read_text().partition(" (")
        except OSError:
            continue  # it has just ended
        name, _, numbers = rest.rpartition(") ")
        fields = numbers.split()
        if name == TASK_THREAD and group in (None, int(fields[2])):
            found[number] = int(fields[11]) + int(fields[12])
    return found


async def records_of_log(pipeline: Pipeline) -> list[tuple[bytes, bytes]]:
    """A log whose heads are at its end; the records of its sessions, which nobody has delivered."""
    await pipeline.send(closed_log(FRAGMENTS, KEYS, MINUTE_MS))
    sessions, positions = await pipeline.sessions()
    await pipeline.commit(positions)
    return [(session.key.encode(), value) for session, value in sessions]


def days_of_sessions(group: str) -> list[tuple[bytes, bytes]]:
    """Records of sessions that arrived on several days, long after they began."""
    return [
        session_record(
            f"k{n}", n, opened_at=NOON_MS + n % DAYS * DAY_MS, first_time=NOON_MS - 9 * DAY_MS, group=group
        )
        for n in range(DAYS * KEYS)
    ]


async def prepare(job: str, control: Control, pipeline: Pipeline) -> int:
    """Makes what the job works on; returns the number of the group's sessions."""
    await pipeline.create()
    is_upkeep = job in ("maintain", "rewrite")
    records = days_of_sessions(DEFAULT_GROUP) if is_upkeep else await records_of_log(pipeline)
    if job == "rewrite":
        old = [value for group in GROUPS for _, value in days_of_sessions(group)]
        write_old_sessions(Path(control.lake) / pipeline.namespace, old)
    if job in ("lake", "audit", "rewrite"):
        await pipeline.deliver(records)
        return len(records)
    half = len(records) // 2
    for jobs, some in ((("lake", "reports"), records[:half]), (("lake",), records[half:])):
        await pipeline.deliver(some)
        for one in jobs:
            run = await control.done(one)
            assert run.state == "succeeded", control.log(run)
    return len(records)


@pytest.mark.parametrize(("job", "moment", "victim"), CELLS)
async def test_a_kill_at_any_moment_changes_nothing(
    job: str,
    moment: str,
    victim: str,
    kafka: str,
    zookeeper: str,
    namespace: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A killed driver's run fails, and the next does its work; a killed control's run goes on without it."""
    pipeline = Pipeline(kafka=kafka, namespace=namespace)
    program = "maintain" if job == "rewrite" else job
    # its first answer takes a second, in which the moment would pass unseen
    monkeypatch.setattr(spark_progress, "ANSWER_TIMEOUT_S", STEP_S)
    async with httpx.AsyncClient(timeout=LIMIT_S) as http, ZooKeeper(zookeeper, 10.0) as znodes:
        control = Control(tmp_path, kafka, zookeeper, namespace, http)
        expected = await prepare(job, control, pipeline)
        names = Names(namespace)
        lock = names.upkeep_lock if program == "maintain" else names.run_lock(DEFAULT_GROUP, program)
        moments = Moments(control, lock, JOBS[job], znodes)
        run = await control.begin(program)

        has_come = await moments.wait(moment, run)
        print(f"\n{job}, {moment}, {victim}: {'killed' if has_come else 'ended before'}")
        killed: list[Control] = []
        if victim == "driver":
            os.killpg(control.runner.run_of(run.id).pid, signal.SIGKILL)
        else:
            killed.append(control)
            control = Control(tmp_path, kafka, zookeeper, namespace, http)  # finds the run of the one before
        ended = await control.ended(run)
        again = await control.done(program)
        after = await control.done("lake") if program == "maintain" else again
        result = control.runner.result_of(after.id)
        for one in (control, *killed):
            await one.runner.stop()

    assert again.state == after.state == "succeeded", control.log(again)
    if victim == "control":
        assert ended.state == "succeeded", control.log(ended)
    assert counted(job, result) == expected
    assert has_come
    if job != "audit":
        check_tables(job, Path(control.lake) / namespace, expected)
    if program == "maintain":
        assert (result["added"], result["layout"]) == (0, 2)


def counted(job: str, result: dict[str, Any]) -> int:
    """The sessions in the table or the report, or those that the audit found right."""
    if job == "reports":
        return sum(day["sessions"] for day in result["days"])
    return int(result["judged"] if result.get("verdict") == "exact" else result["sessions"])


def check_tables(job: str, lake: Path, expected: int) -> None:
    """Each session is there once, and reported once; what was maintained is one file for each day."""
    groups = GROUPS if job == "rewrite" else (DEFAULT_GROUP,)
    table = DeltaTable(lake / "sessions")
    rows = table.to_pyarrow_table(columns=["id", "group", "day", "opened_at"]).to_pylist()
    assert Counter(Counter(row["id"] for row in rows).values()) == {1: expected * len(groups)}
    if job == "reports":
        periods = DeltaTable(lake / "reports" / "periods").to_pyarrow_table(columns=["period", "sessions"])
        reported = [row["sessions"] for row in periods.to_pylist() if row["period"] == "range"]
        assert reported == [expected]
    if job in ("maintain", "rewrite"):
        for row in rows:
            opened = datetime.datetime.fromtimestamp(row["opened_at"] / 1000, datetime.UTC)
            assert row["day"] == opened.date()
        days = {(row["group"], row["day"]) for row in rows}
        assert len(days) == len(table.file_uris()) == len(groups) * DAYS
