"""What the matrix of kills stands on: control and a victim, and the moments of a run.

A driver or an executor dies beside a control in the test's own process. A control that dies is a process.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
from collections.abc import AsyncIterator, Callable, Set
from pathlib import Path
from typing import Any, Protocol

import httpx

from services.control.adapters.runs.store import RunStore
from services.control.core.runs.run import Run
from services.control.spark.reports.report import TABLES
from services.control.spark.run.request import ClusterOptions
from shared.model.group import GroupSettings
from shared.model.names import DEFAULT_GROUP, Names
from shared.model.routing import initial_table
from shared.zookeeper.connection import ZooKeeper
from tests.integration.test_control_process import ControlProcess
from tests.spark import Pipeline
from tests.spark_cluster import MEMORY, SparkCluster
from tests.spark_control import Control
from tests.waiting import until

MOMENTS = ("lock", "batch", "files", "commit", "tables", "result")
STEP_S = 0.01
LIMIT_S = 600.0
"""Only a limit: a busy machine may take minutes for what takes seconds."""
TASK_THREAD = "Executor task l"
"""What Linux keeps of the name "Executor task launch worker"."""
FAST = "-XX:TieredStopAtLevel=1"
"""Java's first compiler alone: executors that live for seconds gain nothing from the second."""
OPTIONS = {
    "spark.executor.memory": MEMORY,
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.driver.extraJavaOptions": FAST,
    "spark.executor.extraJavaOptions": FAST,
}


class Ground(Protocol):
    """A control, and somebody who is killed."""

    store: RunStore
    lake: Path

    async def begin(self, job: str) -> Run:
        """A new run of the job."""
        ...

    async def look(self, run: Run) -> Run:
        """The run as it is now."""
        ...

    async def ended(self, run: Run) -> Run:
        """The run, when it has ended."""
        ...

    def workers(self, run: Run) -> Callable[[int, int], bool]:
        """Whether a process, by its number and its group's, does Spark's tasks for the run."""
        ...

    async def kill(self, run: Run) -> Set[int]:
        """Sends SIGKILL to the victim; returns the processes that got it."""
        ...


async def done(ground: Ground, job: str) -> Run:
    """A run of the job, when it has ended."""
    return await ground.ended(await ground.begin(job))


def log_of(ground: Ground, run: Run) -> str:
    """The end of the run's log."""
    return ground.store.log(run.id, None).text


class ControlHere:
    """Control in this process. The victim is the run's driver or, on a cluster, its executors."""

    def __init__(self, control: Control, cluster: SparkCluster | None = None) -> None:
        self._control = control
        self._cluster = cluster
        self.store, self.lake = control.store, Path(control.lake)
        self.begin, self.ended = control.begin, control.ended

    async def look(self, run: Run) -> Run:
        await self._control.runner.step()
        return self._control.runner.run_of(run.id)

    def workers(self, run: Run) -> Callable[[int, int], bool]:
        if self._cluster is None:
            return lambda _, group: group == run.pid
        executors = self._cluster.executors()
        return lambda process, _: process in executors

    async def kill(self, run: Run) -> Set[int]:
        if self._cluster is None:
            os.killpg(run.pid, signal.SIGKILL)
            return {run.pid}
        killed = self._cluster.executors()  # before it has its lock, the run does not say which are its own
        for process in killed:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        return set(killed)


class ControlAsProcess:
    """Control as a process, which is the victim; the next one has the same folder."""

    def __init__(self, control: ControlProcess, home: Path) -> None:
        self._control = control
        self.store, self.lake = control.store, home / "lake"

    async def begin(self, job: str) -> Run:
        await self._control.until("/streams", lambda answer: bool(answer["streams"]))
        answer = await self._control.http.post(f"/jobs/{job}/runs")
        assert answer.status_code == 202, answer.text
        return self._recorded(answer.json()["id"])

    async def look(self, run: Run) -> Run:
        return self._recorded(run.id)

    async def ended(self, run: Run) -> Run:
        await until(
            lambda: self._recorded(run.id).has_ended,
            lambda: f"{self._control.tail()}\n{log_of(self, run)}",
            LIMIT_S,
        )
        return self._recorded(run.id)

    def workers(self, run: Run) -> Callable[[int, int], bool]:
        return lambda _, group: group == run.pid

    async def kill(self, run: Run) -> Set[int]:
        assert await self._control.stop(signal.SIGKILL) == -signal.SIGKILL
        self._control.start()
        return set()

    def _recorded(self, run_id: str) -> Run:
        (run,) = [run for run in self.store.load() if run.id == run_id]
        return run


@contextlib.asynccontextmanager
async def control_here(
    home: Path, pipeline: Pipeline, zookeeper: str, cluster: SparkCluster | None
) -> AsyncIterator[Ground]:
    """Control in this process, on this machine alone or on the cluster."""
    where: dict[str, Any] = (
        {} if cluster is None else {"master": cluster.master, "cluster": ClusterOptions(options=OPTIONS)}
    )
    async with httpx.AsyncClient(timeout=LIMIT_S) as http:
        control = Control(home, pipeline.kafka, zookeeper, pipeline.namespace, http, **where)
        try:
            yield ControlHere(control, cluster)
        finally:
            await control.runner.stop()


@contextlib.asynccontextmanager
async def control_as_process(
    home: Path, pipeline: Pipeline, zookeeper: str, znodes: ZooKeeper
) -> AsyncIterator[Ground]:
    """Control as a process, with a group whose members are all gone."""
    names = Names(pipeline.namespace)
    for path in (names.root, names.groups, names.producers):
        await znodes.make_path(path)
    await znodes.create(names.table, initial_table(pipeline.streams).encode())
    await znodes.create(names.group(DEFAULT_GROUP), GroupSettings().encode())
    for path in (names.members(DEFAULT_GROUP), names.claims(DEFAULT_GROUP), names.streams(DEFAULT_GROUP)):
        await znodes.make_path(path)
    control = ControlProcess(home, pipeline.kafka, zookeeper, pipeline.namespace)
    async with control.http:
        control.start()
        try:
            yield ControlAsProcess(control, home)
        finally:
            stopped = await control.stop()
    assert stopped == 0


class Moments:
    """Whether a moment of a job has come. `operation`: of the commits that count, or "" for all."""

    def __init__(self, ground: Ground, lock: str, operation: str, znodes: ZooKeeper, seed: int) -> None:
        self._ground = ground
        self._lock = lock
        self._operation = operation
        self._znodes = znodes
        self._commits, self._files = self._count_commits(), self._count_files()
        self._published = self._count_published()
        self._ticks = task_threads(lambda *_: True)
        self.tables = random.Random(seed).randint(1, len(TABLES))
        """How many tables of a report are published at the moment `tables`."""

    async def wait(self, moment: str, run: Run) -> bool:
        """Returns True at this moment, or False when the run has ended before anybody saw it."""
        has_come: dict[str, Callable[[], Any]] = {
            "lock": lambda: self._znodes.get(self._lock),
            "batch": lambda: self._has_begun(run),
            "files": lambda: self._count_files() > self._files,
            "commit": lambda: self._count_commits() > self._commits,
            "tables": lambda: self._count_published() >= self._published + self.tables,
            "result": lambda: self._ground.store.has_result(run.id),
        }
        async with asyncio.timeout(LIMIT_S):
            while not run.has_ended:
                found = has_come[moment]()
                if await found if asyncio.iscoroutine(found) else found:
                    return True
                await asyncio.sleep(STEP_S)
                run = await self._ground.look(run)
        return False

    def _has_begun(self, run: Run) -> bool:
        """Whether Spark has begun the run's tasks; what it says itself comes too late for a short run."""
        ticks = task_threads(self._ground.workers(run))
        has_begun = any(spent > self._ticks.get(task, 0) for task, spent in ticks.items())
        if self._ground.store.driver(run.id) is not None:
            return has_begun
        self._ticks |= ticks  # of the task by which a run on a cluster awaits its first executor
        return False

    def _count_files(self) -> int:
        """Files with rows of all tables, whether or not a commit names them."""
        return sum(1 for _ in self._ground.lake.rglob("part-*.parquet"))

    def _count_commits(self) -> int:
        """Commits of all tables so far."""
        wanted = f'"operation":"{self._operation}"' if self._operation else ""
        logs = self._ground.lake.rglob("_delta_log/*.json")
        return sum(1 for log in logs if not wanted or wanted in log.read_text())

    def _count_published(self) -> int:
        """Commits so far of the tables that people read."""
        return sum(
            len(list(self._ground.lake.glob(f"*/reports/{name}/_delta_log/*.json"))) for name in TABLES
        )


def task_threads(is_worker: Callable[[int, int], bool]) -> dict[str, int]:
    """The CPU time of the threads that work on Spark's tasks, in ticks, of these processes."""
    found = {}
    for thread in Path("/proc").glob("[0-9]*/task/*/stat"):
        try:
            number, _, rest = thread.read_text().partition(" (")
        except OSError:
            continue  # it has just ended
        name, _, numbers = rest.rpartition(") ")
        fields = numbers.split()
        if name == TASK_THREAD and is_worker(int(thread.parts[2]), int(fields[2])):
            found[number] = int(fields[11]) + int(fields[12])
    return found
