"""Runs are real processes: they start, tell, end, and leave nothing behind."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import httpx
import pytest

from services.control.adapters.process_group import born_of
from services.control.adapters.run_store import RunStore
from services.control.adapters.spark_progress import SparkProgress
from services.control.adapters.spark_runner import SparkPlace, SparkRunner
from services.control.core.jobs import JOBS
from services.control.core.runs import ENDED, JobAlreadyRunning, Progress, Run, RunError, UnknownRun
from shared.errors import SparkUnavailable
from shared.model.group import GroupSettings

DRIVER = (sys.executable, "-I", "-S", str(Path(__file__).with_name("stand_in_driver.py")))
UI = "http://127.0.0.1:4040"
DEADLINE_S = 15.0


def spark_ui(request: httpx.Request) -> httpx.Response:
    """What a real Spark UI answers about one application with two jobs."""
    assert request.url.path == "/api/v1/applications/app-1/jobs"
    job = {"jobId": 1, "numTasks": 8, "numCompletedTasks": 3, "numSkippedTasks": 2}
    return httpx.Response(200, json=[job | {"numActiveTasks": 2, "numFailedTasks": 1}, {"numTasks": 4}])


class Bench:
    """A runner on a folder, as one control process has it; `again()` is the next process on it."""

    def __init__(self, folder: Path, *, timeout_s: float = 60, kept: int = 100) -> None:
        self.folder = folder
        self.timeout_s = timeout_s
        self.kept = kept
        self.progress = SparkProgress(httpx.MockTransport(spark_ui))
        self.runners: list[SparkRunner] = []
        self.runner = self.again()

    def again(self, driver: tuple[str, ...] = DRIVER) -> SparkRunner:
        """A runner of a control process that has just started."""
        self.runner = SparkRunner(
            RunStore(self.folder),
            SparkPlace(kafka="k:1", namespace="n", lake=UI, jars="/jars", master="local[1]"),
            timeout_s=self.timeout_s,
            kept=self.kept,
            progress=self.progress,
            driver=driver,
        )
        self.runners.append(self.runner)
        return self.runner

    async def start(self, how: str, *, group: str = "default", timeout_s: float | None = None) -> Run:
        """A run whose driver behaves as `how` says."""
        return await self.runner.start(
            JOBS["reports"],
            group=group,
            parameters={"item_path": how, "top": 5},
            settings=GroupSettings(gap_ms=99),
            streams=7,
            timeout_s=timeout_s,
        )

    async def until(self, run: Run, *states: str) -> Run:
        """The run when it has one of the states, the runner stepping meanwhile."""

        async def reached() -> bool:
            await self.runner.step()
            return self.runner.run_of(run.id).state in states

        await poll(reached)
        return self.runner.run_of(run.id)

    def child_of(self, run: Run) -> int:
        """The process that the run's driver has started."""
        return int((self.folder / run.id / "child").read_text())

    def has_child(self, run: Run) -> Callable[[], Awaitable[bool]]:
        """Asks whether the run's driver has told its child."""

        async def told() -> bool:
            return os.path.exists(f"{self.folder}/{run.id}/child")  # noqa: ASYNC240  a test's own file

        return told

    def leftovers(self, run: Run) -> list[int]:
        """Those of the run's two processes that still live."""
        return [pid for pid in (run.pid, self.child_of(run)) if born_of(pid)]


async def poll(reached: Callable[[], Awaitable[bool]]) -> None:
    """Returns when `reached` says so; fails at the deadline."""
    deadline = time.monotonic() + DEADLINE_S
    while not await reached():
        assert time.monotonic() < deadline, "the deadline has passed"
        await asyncio.sleep(0.02)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path / "runs")
    async with bench.progress:
        yield bench
        for runner in bench.runners:
            await runner.stop()


async def test_a_run_succeeds_with_its_published_result(bench: Bench) -> None:
    """The result is the driver's, and the request tells the driver all that it needs."""
    run = await bench.start("$.succeed")

    ended = await bench.until(run, *ENDED)

    assert (ended.state, ended.error) == ("succeeded", None)
    assert bench.runner.result_of(run.id) == {"answer": 42}
    request = (bench.folder / run.id / "request.json").read_bytes()
    for part in (b'"streams":7', b'"gap_ms":99', b'"jars":"/jars"', b'"kafka":"k:1"', b'"group":"default"'):
        assert part in request


async def test_progress_is_sparks_own_task_counts(bench: Bench) -> None:
    """The bar sums the UI's jobs without the tasks of skipped stages."""
    run = await bench.start("$.hang")

    await bench.until(run, "running")
    await bench.runner.step()

    assert bench.runner.run_of(run.id).progress == Progress(tasks=10, completed=3, active=2, failed=1)


async def test_a_drivers_error_is_the_runs(bench: Bench) -> None:
    """Spark's condition and sentence are handed on as they are; the child goes too."""
    run = await bench.start("$.fail")

    ended = await bench.until(run, *ENDED)

    assert ended.error == RunError(condition="DIVIDE_BY_ZERO", message="Division by zero.")
    assert bench.leftovers(ended) == []


async def test_a_driver_that_dies_without_a_word_is_lost(bench: Bench) -> None:
    """DriverLost, with the signal and the last line that was printed; its child does not stay behind."""
    run = await bench.start("$.die")

    ended = await bench.until(run, *ENDED)

    assert ended.state == "failed"
    assert ended.error is not None
    assert ended.error.condition == "DriverLost"
    assert "signal 9" in ended.error.message
    assert "no memory left" in ended.error.message
    assert bench.leftovers(ended) == []


async def test_a_success_leaves_no_child_behind(bench: Bench) -> None:
    """What a driver forgot to end is ended with the run."""
    run = await bench.start("$.leave_a_child")

    ended = await bench.until(run, *ENDED)

    assert ended.state == "succeeded"
    assert bench.leftovers(ended) == []


@pytest.mark.parametrize("how", ["$.hang", "$.stubborn"])
async def test_a_cancel_leaves_no_process_within_two_seconds(bench: Bench, how: str) -> None:
    """SIGTERM for those who listen, SIGKILL for those who do not, and the child alike."""
    run = await bench.start(how)
    await bench.until(run, "running")
    assert len(bench.leftovers(run)) == 2
    begun = time.monotonic()

    ended = await bench.runner.cancel(run.id)

    assert time.monotonic() - begun < 2
    assert (ended.state, ended.error and ended.error.condition) == ("cancelled", "Cancelled")
    assert bench.leftovers(run) == []


async def test_a_cancel_while_the_runner_looks_is_a_cancel(bench: Bench) -> None:
    """A dying driver is not taken for a lost one by the watching loop at its side."""
    run = await bench.start("$.stubborn")
    await bench.until(run, "running")
    watching = asyncio.create_task(bench.runner.run(), name="runs")

    ended = await bench.runner.cancel(run.id)

    watching.cancel()
    assert ended.state == "cancelled"
    assert bench.runner.run_of(run.id).state == "cancelled"


async def test_a_second_cancel_changes_nothing(bench: Bench) -> None:
    """Ended is ended."""
    run = await bench.start("$.hang")

    first = await bench.runner.cancel(run.id)
    second = await bench.runner.cancel(run.id)

    assert first == second


async def test_a_run_past_its_limit_fails(bench: Bench) -> None:
    """The wall-clock limit ends the whole group; the run's own limit may only be shorter."""
    run = await bench.start("$.stubborn", timeout_s=0.3)
    other = await bench.start("$.hang", group="other", timeout_s=9999)

    await poll(bench.has_child(run))
    ended = await bench.until(run, *ENDED)

    assert ended.error is not None
    assert ended.error.condition == "RunTimeout"
    assert bench.leftovers(ended) == []
    assert other.timeout_s == 60


async def test_one_run_per_job_and_group(bench: Bench) -> None:
    """A second run is refused while the first lives; another group's is not."""
    run = await bench.start("$.hang")

    with pytest.raises(JobAlreadyRunning, match=run.id):
        await bench.start("$.succeed")
    other = await bench.start("$.succeed", group="other")
    await bench.runner.cancel(run.id)
    again = await bench.start("$.succeed")

    assert {run.id for run in bench.runner.runs()} == {run.id, other.id, again.id}


async def test_stopping_control_ends_its_drivers(bench: Bench) -> None:
    """No driver outlives an orderly stop."""
    runs = [await bench.start(how, group=how[2:]) for how in ("$.hang", "$.stubborn")]
    for run in runs:
        await bench.until(run, "running")

    await bench.runner.stop()

    assert [bench.runner.run_of(run.id).state for run in runs] == ["cancelled", "cancelled"]
    assert [bench.leftovers(run) for run in runs] == [[], []]


async def test_a_restarted_control_goes_on_watching(bench: Bench) -> None:
    """A driver that outlived control is watched, and can be cancelled, by the next control."""
    run = await bench.start("$.hang")
    await bench.until(run, "running")

    bench.again()
    await bench.runner.step()

    assert bench.runner.run_of(run.id).state == "running"
    ended = await bench.runner.cancel(run.id)
    assert ended.state == "cancelled"
    assert bench.leftovers(run) == []


@pytest.mark.parametrize(("how", "state"), [("$.die", "failed"), ("$.succeed", "succeeded")])
async def test_a_restarted_control_knows_how_a_run_ended(bench: Bench, how: str, state: str) -> None:
    """What happened while control was away is read from the run's folder."""
    run = await bench.start(how)

    async def has_ended() -> bool:
        return not born_of(run.pid)

    await poll(has_ended)
    bench.again()
    await bench.runner.step()

    assert bench.runner.run_of(run.id).state == state


async def test_a_strangers_process_is_never_touched(bench: Bench) -> None:
    """A pid that was given to another process since is not the driver's."""
    run = await bench.start("$.hang")
    await bench.until(run, "running")
    record = bench.folder / run.id / "run.json"
    text = record.read_text()
    assert f'"born":"{run.born}"' in text
    record.write_text(text.replace(f'"born":"{run.born}"', '"born":"1"'))

    older = bench.runner
    bench.again()
    await bench.runner.step()

    assert bench.runner.run_of(run.id).state == "failed"
    assert len(bench.leftovers(run)) == 2
    await older.cancel(run.id)


async def test_a_record_without_a_process_harms_nobody(bench: Bench) -> None:
    """Control may die between a run's record and its driver; pid 0 would mean itself to kill."""
    run = await bench.start("$.succeed")
    await bench.until(run, *ENDED)
    (bench.folder / run.id / "result.json").unlink()
    record = bench.folder / run.id / "run.json"
    text = record.read_text().replace(f'"pid":{run.pid}', '"pid":0').replace("succeeded", "starting")
    record.write_text(text)

    bench.again()
    await bench.runner.step()

    assert bench.runner.run_of(run.id).state == "failed"


async def test_an_unreadable_record_is_left_alone(bench: Bench) -> None:
    """A torn or foreign folder does not keep control from starting."""
    (bench.folder / "torn").mkdir(parents=True)
    (bench.folder / "torn" / "run.json").write_text('{"id": "to')

    assert bench.again().runs() == []


async def test_a_driver_that_cannot_be_started_is_told(bench: Bench) -> None:
    """No run is left behind by a program that is not there."""
    bench.again(driver=("/nowhere/python",))

    with pytest.raises(SparkUnavailable, match="nowhere"):
        await bench.start("$.succeed")

    assert bench.runner.runs() == []
    assert list(bench.folder.iterdir()) == []


async def test_old_runs_are_forgotten(tmp_path: Path) -> None:
    """Only so many ended runs are kept, on disk too."""
    bench = Bench(tmp_path, kept=2)
    async with bench.progress:
        runs = []
        for _ in range(4):
            runs.append(await bench.start("$.succeed"))
            await bench.until(runs[-1], *ENDED)
        bench.runner.forget_old()

        assert {run.id for run in bench.runner.runs()} == {run.id for run in runs[2:]}
        assert set(os.listdir(tmp_path)) == {run.id for run in runs[2:]}
        with pytest.raises(UnknownRun):
            bench.runner.result_of(runs[0].id)


async def test_a_paused_driver_is_ended_too(bench: Bench) -> None:
    """SIGSTOP holds off SIGTERM, not SIGKILL."""
    run = await bench.start("$.hang")
    await bench.until(run, "running")
    os.killpg(run.pid, signal.SIGSTOP)

    await bench.runner.cancel(run.id)

    assert bench.leftovers(run) == []
