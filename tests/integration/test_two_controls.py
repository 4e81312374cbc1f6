"""Two controls with the same schedule, on one lake and one ZooKeeper, with folders of runs of their own.

The drivers, the lock and ZooKeeper are real; the jobs do nothing (`locking_driver.py`).
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from services.control.adapters.runs.place import SparkPlace
from services.control.adapters.runs.runner import SparkRunner
from services.control.adapters.runs.store import RunStore
from services.control.core.runs.run import Run, Submission
from services.control.core.runs.schedules import Retry, Schedule, ScheduleRow
from services.control.live.acts.actions import Actions
from services.control.live.runs.scheduler import Scheduler
from services.control.live.view.cluster_view import ClusterView
from services.control.spark.run.request import ZooKeeperPlace
from shared.model.group import GroupSettings
from tests.unit.control.sources import small_baton
from tests.waiting import until

DRIVER = (sys.executable, "-m", "tests.integration.locking_driver")
CHAIN = Schedule(jobs=("lake", "reports"), every_s=900)
SLOT_MS = CHAIN.every_s * 1000
RETRY = Retry(most=2, pause_s=60)
TIMEOUT_S = 3600.0
LOCK_TIMEOUT_S = 2.0


class Clock:
    """Both controls' time: it passes as usual, and begins at the start of a slot."""

    def __init__(self) -> None:
        self._ahead_ms = 0
        self.skip_to_next_slot()

    def __call__(self) -> int:
        return time.time_ns() // 1_000_000 + self._ahead_ms

    def skip(self, seconds: float) -> None:
        self._ahead_ms += int(seconds * 1000)

    def skip_to_next_slot(self) -> None:
        self._ahead_ms += SLOT_MS - self() % SLOT_MS


class Control:
    """What a control has of its schedules and runs."""

    def __init__(
        self, folder: Path, place: SparkPlace, http: httpx.AsyncClient, view: ClusterView, clock: Clock
    ) -> None:
        self.runner = SparkRunner(
            RunStore(folder),
            place,
            http,
            timeout_s=TIMEOUT_S,
            kept=100,
            idle_s=30,
            driver=DRIVER,
            now_ms=clock,
        )
        self.scheduler = Scheduler([CHAIN], self.runner, view, Actions(lambda _: None), RETRY, now_ms=clock)

    async def step(self) -> None:
        await self.runner.step()
        await self.scheduler.step()

    @property
    def row(self) -> ScheduleRow:
        (row,) = self.scheduler.rows()
        return row

    def outcomes(self) -> list[str]:
        """Its runs so far, in their order: the job, and how it ended."""
        return [
            f"{run.job} {run.error.condition if run.error else run.state}"
            for run in reversed(self.runner.runs())
        ]


class Pair:
    """Both controls and the lake."""

    def __init__(self, lake: Path, controls: list[Control], clock: Clock) -> None:
        self.lake = lake
        self.controls = controls
        self.clock = clock

    async def step(self) -> None:
        for control in self.controls:
            await control.step()

    def hold(self) -> None:
        """Makes the jobs last."""
        (self.lake / "hold").touch()

    def let_go(self) -> None:
        (self.lake / "hold").unlink()

    async def at_work(self, *killed: Run) -> tuple[Control, Control, Run]:
        """The control whose run works, the other one, and that run."""
        before = {run.id for run in killed}

        async def working() -> list[tuple[Control, Control, Run]]:
            await self.step()
            return [
                (one, other, run)
                for one, other in (self.controls, self.controls[::-1])
                for run in one.runner.runs()
                if not run.has_ended and run.id not in before and (self.lake / f"{run.id}.began").exists()
            ]

        (found,) = await until(working)
        return found

    async def round_over(self) -> None:
        """Returns when neither has anything left to do in this slot."""

        async def is_over() -> bool:
            await self.step()
            now = self.clock()
            rows = [control.row for control in self.controls]
            return all(row.state in ("waiting", "failed") and row.next_at > now for row in rows)

        await until(is_over, lambda: [(one.row, one.outcomes()) for one in self.controls])


def place_of(lake: str, kafka: str, zookeeper: str, namespace: str) -> SparkPlace:
    return SparkPlace(
        kafka=kafka,
        namespace=namespace,
        lake=lake,
        jars="",
        master="local[1]",
        zookeeper=ZooKeeperPlace(servers=zookeeper, timeout_s=LOCK_TIMEOUT_S),
    )


@pytest.fixture
async def pair(kafka: str, zookeeper: str, namespace: str, tmp_path: Path) -> AsyncIterator[Pair]:
    lake, clock, view = tmp_path / "lake", Clock(), small_baton().view()
    lake.mkdir()
    await view.step()
    place = place_of(str(lake), kafka, zookeeper, namespace)
    async with httpx.AsyncClient() as http:
        controls = [Control(tmp_path / name, place, http, view, clock) for name in ("runs-a", "runs-b")]
        yield Pair(lake, controls, clock)
        for control in controls:
            await control.runner.stop()


async def test_a_long_run_of_one_control_is_no_failure_of_the_other(pair: Pair) -> None:
    """The other waits for a while, leaves the round to the first, and is there again in the next one."""
    pair.hold()
    first, other, _ = await pair.at_work()
    assert await ended(pair, other, 1) == ["lake RunUnderWay"]
    assert (other.row.state, other.row.failures) == ("waiting", 0)
    pair.let_go()
    await pair.round_over()

    assert first.outcomes() == ["lake succeeded", "reports succeeded"]
    assert other.outcomes() == ["lake RunUnderWay"]
    assert [control.row.failures for control in pair.controls] == [0, 0]
    assert other.row.succeeded_at is None

    pair.clock.skip_to_next_slot()
    await pair.round_over()

    assert [control.row.failures for control in pair.controls] == [0, 0]
    assert first.outcomes()[2:] == other.outcomes()[1:] == ["lake succeeded", "reports succeeded"]


async def test_the_other_control_does_the_work_of_a_killed_run(pair: Pair) -> None:
    """It gets the lock when the dead driver's ZooKeeper session ends; the first one's schedule recovers."""
    pair.hold()
    first, other, run = await pair.at_work()
    os.killpg(run.pid, signal.SIGKILL)
    successor, _, _ = await pair.at_work(run)
    assert successor is other
    pair.clock.skip(RETRY.pause_s)
    assert await ended(pair, first, 2) == ["lake DriverLost", "lake RunUnderWay"]
    pair.let_go()
    await pair.round_over()

    assert len(first.outcomes()) == 2
    assert other.outcomes() == ["lake succeeded", "reports succeeded"]
    # the round that the other has taken is no failure any more
    assert [control.row.failures for control in pair.controls] == [0, 0]


async def ended(pair: Pair, control: Control, count: int) -> list[str]:
    """How the control's runs have ended, once so many have."""

    async def have_ended() -> bool:
        await pair.step()
        return sum(run.has_ended for run in control.runner.runs()) == count

    await until(have_ended, control.outcomes)
    return control.outcomes()


async def test_at_a_url_all_runs_that_write_take_turns(
    kafka: str, zookeeper: str, namespace: str, tmp_path: Path
) -> None:
    """Whatever their jobs and groups: one works, the others wait for it, and none fails."""
    lake = tmp_path / "lake"
    lake.mkdir()
    (lake / "hold").touch()
    place = place_of(f"file://{lake}", kafka, zookeeper, namespace)
    async with httpx.AsyncClient() as http:
        runner = SparkRunner(
            RunStore(tmp_path / "runs"), place, http, timeout_s=TIMEOUT_S, kept=10, driver=DRIVER
        )
        runs = [
            await runner.start(
                Submission(job=job, group=group, parameters={}, settings=GroupSettings(), streams=1)
            )
            for job, group in (("lake", "a"), ("reports", "a"), ("lake", "b"))
        ]

        async def states() -> list[str]:
            await runner.step()
            return sorted(runner.run_of(run.id).state for run in runs)

        async def one_works() -> bool:
            return await states() == ["running", "starting", "starting"]

        async def all_done() -> bool:
            return await states() == ["succeeded"] * 3

        try:
            await until(one_works, states)
            (lake / "hold").unlink()
            await until(all_done, lambda: [runner.run_of(run.id) for run in runs])
        finally:
            await runner.stop()
