"""Runs are real processes: they start, report, end, and leave nothing behind."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import httpx
import msgspec
import pytest

from services.control.adapters.runs.place import SparkPlace
from services.control.adapters.runs.process_group import ProcessGroup, born_of
from services.control.adapters.runs.runner import SparkRunner
from services.control.adapters.runs.store import LOG_PART, RunsInUse, RunStore
from services.control.core.causes import NOBODY, cause_of
from services.control.core.runs.run import ENDED, JobAlreadyRunning, Progress, Run, Submission, UnknownRun
from services.control.spark.run.request import read_request
from shared.errors import SparkUnavailable
from shared.model.group import GroupSettings
from tests.waiting import until

DRIVER = (sys.executable, "-I", "-S", str(Path(__file__).with_name("stand_in_driver.py")))
UI = "http://127.0.0.1:4040"


def spark_ui(request: httpx.Request) -> httpx.Response:
    """The answer of a real Spark UI for an application with two jobs, after one of an earlier run."""
    assert request.url.path == "/api/v1/applications/app-1/jobs"
    job = {"jobId": 1, "numTasks": 8, "numCompletedTasks": 3, "numSkippedTasks": 2}
    others = {"jobId": 2, "numTasks": 4}, {"jobId": 0, "numTasks": 99, "numCompletedTasks": 99}
    return httpx.Response(200, json=[job | {"numActiveTasks": 2, "numFailedTasks": 1}, *others])


class Bench:
    """The runner of one control process on a folder; `again()` is the next control process."""

    def __init__(self, folder: Path, *, timeout_s: float = 60, kept: int = 100, idle_s: float = 0.0) -> None:
        self.folder = folder
        self.idle_s = idle_s
        self.timeout_s = timeout_s
        self.kept = kept
        self.kept_s = math.inf
        self.ahead_ms = 0
        self.http = httpx.AsyncClient(transport=httpx.MockTransport(spark_ui))
        self.cause = NOBODY
        self.runners: list[SparkRunner] = []
        self.runner = self.again()

    def again(self, driver: tuple[str, ...] = DRIVER, *, jars: str = "/jars") -> SparkRunner:
        """A runner of a control process that has just started."""
        self.runner = SparkRunner(
            RunStore(self.folder),
            SparkPlace(kafka="k:1", namespace="n", lake=UI, jars=jars, master="local[1]"),
            self.http,
            timeout_s=self.timeout_s,
            kept=self.kept,
            kept_s=self.kept_s,
            idle_s=self.idle_s,
            driver=driver,
            now_ms=lambda: time.time_ns() // 1_000_000 + self.ahead_ms,
        )
        self.runners.append(self.runner)
        return self.runner

    async def start(self, how: str, *, group: str = "default", timeout_s: float | None = None) -> Run:
        """A run whose driver behaves as `how` says."""
        submission = Submission(
            job="reports",
            group=group,
            parameters={"item_path": how, "top": 5},
            settings=GroupSettings(gap_ms=99),
            streams=7,
            stream_table="{}",
            timeout_s=timeout_s,
        )
        return await self.runner.start(msgspec.structs.replace(submission, cause=self.cause))

    async def until(self, run: Run, *states: str) -> Run:
        """The run once it has one of the states; steps the runner meanwhile."""

        async def reached() -> bool:
            await self.runner.step()
            return self.runner.run_of(run.id).state in states

        await until(reached)
        return self.runner.run_of(run.id)

    def child_of(self, run: Run) -> int:
        """The process that the run's driver has started."""
        return int((self.folder / run.id / "child").read_text())

    def has_child(self, run: Run) -> Callable[[], Awaitable[bool]]:
        """Asks whether the run's driver has started its child; it does not step the runner."""

        async def has_started() -> bool:
            return os.path.exists(f"{self.folder}/{run.id}/child")  # noqa: ASYNC240  a test's own file

        return has_started

    def edit_record(self, run: Run, old: str, new: str) -> None:
        """Replaces a part of the run's record on disk."""
        record = self.folder / run.id / "run.json"
        text = record.read_text()
        assert old in text
        record.write_text(text.replace(old, new))

    def leftovers(self, run: Run) -> list[int]:
        """Those of the run's two processes that are alive."""
        return [pid for pid in (run.pid, self.child_of(run)) if born_of(pid)]


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path / "runs")
    yield bench
    for runner in bench.runners:
        await runner.stop()


async def test_a_run_succeeds_with_its_published_result(bench: Bench) -> None:
    """The result is the driver's; the request holds everything that the driver needs."""
    run = await bench.start("$.succeed")

    ended = await bench.until(run, *ENDED)

    assert (ended.state, ended.error) == ("succeeded", None)
    assert bench.runner.result_of(run.id) == {"answer": 42}
    request = read_request(bench.folder / run.id)
    assert (request.streams, request.group_settings.gap_ms, request.group) == (7, 99, "default")
    assert request.stream_table == "{}"
    assert (request.kafka, request.jars, request.parameters["top"]) == ("k:1", "/jars", 5)


async def test_progress_is_sparks_own_task_counts(bench: Bench) -> None:
    """It sums the run's jobs of the UI, without the tasks of skipped stages."""
    run = await bench.start("$.hang")

    await bench.until(run, "running")
    await bench.runner.step()

    assert bench.runner.run_of(run.id).progress == Progress(tasks=10, completed=3, active=2, failed=1)


@pytest.mark.parametrize(
    ("how", "condition", "words"),
    [
        ("$.leave_a_child", "", []),
        ("$.fail", "DIVIDE_BY_ZERO", ["Division by zero."]),
        ("$.die", "DriverLost", ["signal 9", "no memory left"]),
    ],
)
async def test_no_end_leaves_a_process(bench: Bench, how: str, condition: str, words: list[str]) -> None:
    """A success, Spark's own error, or a death with its last output: the driver's child is ended, too."""
    run = await bench.start(how)

    ended = await bench.until(run, *ENDED)

    assert ended.state == ("failed" if condition else "succeeded")
    assert (ended.error.condition if ended.error else "") == condition
    assert [word for word in words if ended.error is None or word not in ended.error.message] == []
    assert bench.leftovers(ended) == []


@pytest.mark.parametrize("how", ["$.hang", "$.stubborn", "paused"])
async def test_a_cancel_leaves_no_process(bench: Bench, how: str) -> None:
    """SIGTERM, then SIGKILL for those that ignore it or are stopped. A second cancel changes nothing."""
    run = await bench.start(how)
    await bench.until(run, "running")
    assert len(bench.leftovers(run)) == 2
    if how == "paused":
        os.killpg(run.pid, signal.SIGSTOP)

    ended = await bench.runner.cancel(run.id)

    assert (ended.state, ended.error and ended.error.condition) == ("cancelled", "Cancelled")
    assert bench.leftovers(run) == []
    assert await bench.runner.cancel(run.id) == ended


async def test_a_cancel_wins_against_the_watching_loop(bench: Bench) -> None:
    """The loop sees the driver die, but the run ends as cancelled, not as lost."""
    run = await bench.start("$.stubborn")
    await bench.until(run, "running")
    watching = asyncio.create_task(bench.runner.run(), name="runs")

    ended = await bench.runner.cancel(run.id)

    watching.cancel()
    assert ended.state == bench.runner.run_of(run.id).state == "cancelled"


async def test_a_run_past_its_limit_fails(bench: Bench) -> None:
    """The limit ends the whole group. A run's own limit can only be shorter than control's."""
    run = await bench.start("$.stubborn", timeout_s=0.3)
    other = await bench.start("$.hang", group="other", timeout_s=9999)

    await until(bench.has_child(run))
    ended = await bench.until(run, *ENDED)

    assert ended.error is not None
    assert ended.error.condition == "RunTimeout"
    assert bench.leftovers(ended) == []
    assert other.timeout_s == 60


async def test_one_run_per_job_and_group(bench: Bench) -> None:
    """A second run is refused while the first is under way; another group's is not."""
    run = await bench.start("$.hang")

    with pytest.raises(JobAlreadyRunning, match=run.id):
        await bench.start("$.succeed")
    other = await bench.start("$.succeed", group="other")
    await bench.runner.cancel(run.id)
    again = await bench.start("$.succeed")

    assert {run.id for run in bench.runner.runs()} == {run.id, other.id, again.id}


async def test_stopping_control_ends_its_drivers(bench: Bench) -> None:
    """No driver survives an orderly stop."""
    runs = [await bench.start(how, group=how[2:]) for how in ("$.hang", "$.stubborn")]
    for run in runs:
        await bench.until(run, "running")

    await bench.runner.stop()

    assert [bench.runner.run_of(run.id).state for run in runs] == ["cancelled", "cancelled"]
    assert [bench.leftovers(run) for run in runs] == [[], []]


async def test_a_run_remembers_its_request_over_a_restart(bench: Bench) -> None:
    """So a request that is repeated under its key finds the run: who asked, why, and the digests."""
    bench.cause = cause_of("ann", "late data", "k", "what was asked")
    run = await bench.start("hang")

    found = bench.again().run_of(run.id)

    assert (found.who, found.reason) == ("ann", "late data")
    assert (found.key, found.request) == (bench.cause.key, bench.cause.request)
    assert "" not in (found.key, found.request)


async def test_a_restarted_control_resumes_its_runs(bench: Bench) -> None:
    """It watches the drivers that survived the last control, and can cancel them."""
    run = await bench.start("$.hang")
    await bench.until(run, "running")

    bench.again()
    await bench.runner.step()

    assert bench.runner.run_of(run.id).state == "running"
    assert (await bench.runner.cancel(run.id)).state == "cancelled"
    assert bench.leftovers(run) == []


@pytest.mark.parametrize(("how", "state"), [("$.die", "failed"), ("$.succeed", "succeeded")])
async def test_a_restarted_control_learns_how_a_run_ended(bench: Bench, how: str, state: str) -> None:
    """The run's folder holds what happened while control was away."""
    run = await bench.start(how)

    async def has_ended() -> bool:
        return not born_of(run.pid)

    await until(has_ended)
    bench.again()
    await bench.runner.step()

    assert bench.runner.run_of(run.id).state == state


async def test_a_foreign_process_is_never_signalled(bench: Bench) -> None:
    """A process that started at another time is not the driver, even if it has the driver's pid."""
    run = await bench.start("$.hang")
    await bench.until(run, "running")
    bench.edit_record(run, f'"born":"{run.born}"', '"born":"1"')

    older = bench.runner
    bench.again()
    await bench.runner.step()

    assert bench.runner.run_of(run.id).state == "failed"
    assert len(bench.leftovers(run)) == 2
    await older.cancel(run.id)


async def test_a_group_of_zombies_is_empty() -> None:
    """Its number cannot be used again before their parent has waited for them, which may take any time."""
    spawn = (
        "import subprocess\n"
        "child = subprocess.Popen(['true'], start_new_session=True)\n"
        "print(child.pid, flush=True)\n"
        "input()"
    )
    with subprocess.Popen(  # noqa: ASYNC220  its parent must not wait for it
        [sys.executable, "-c", spawn], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        leader = int(parent.stdout.readline())
        await until(lambda: not born_of(leader))

        os.killpg(leader, 0)  # it is still there
        assert ProcessGroup(leader, "").is_empty()
        parent.communicate(b"\n")


async def test_a_record_without_a_process_signals_nobody(bench: Bench) -> None:
    """Control may die between a run's record and its driver: killing pid 0 would kill control itself."""
    run = await bench.start("$.succeed")
    await bench.until(run, *ENDED)
    (bench.folder / run.id / "result.json").unlink()
    bench.edit_record(run, f'"pid":{run.pid}', '"pid":0')
    bench.edit_record(run, "succeeded", "starting")

    bench.again()
    await bench.runner.step()

    assert bench.runner.run_of(run.id).state == "failed"


async def test_an_unreadable_record_is_ignored(bench: Bench) -> None:
    """A torn or foreign folder does not keep control from starting."""
    (bench.folder / "torn").mkdir(parents=True)
    (bench.folder / "torn" / "run.json").write_text('{"id": "to')

    assert bench.again().runs() == []


async def test_a_driver_that_cannot_be_started_leaves_no_run(bench: Bench) -> None:
    """The caller gets SparkUnavailable with the reason."""
    bench.again(driver=("/nowhere/python",))

    with pytest.raises(SparkUnavailable, match="nowhere"):
        await bench.start("$.succeed")

    assert bench.runner.runs() == []
    assert [path.name for path in bench.folder.rglob("*")] == ["drivers"]


async def test_the_oldest_runs_are_forgotten(tmp_path: Path) -> None:
    """Control keeps a limited number of ended runs, and removes the folders of the others."""
    bench = Bench(tmp_path, kept=2)
    runs = []
    for _ in range(4):
        runs.append(await bench.start("$.succeed"))
        await bench.until(runs[-1], *ENDED)
    bench.runner.forget_old()

    assert {run.id for run in bench.runner.runs()} == {run.id for run in runs[2:]}
    assert set(os.listdir(tmp_path)) == {run.id for run in runs[2:]} | {"drivers"}
    with pytest.raises(UnknownRun):
        bench.runner.result_of(runs[0].id)


async def test_old_runs_are_forgotten_but_those_that_schedules_need(bench: Bench) -> None:
    """However few there are, and while no run starts; a run under way is never too old."""
    for group in ("default", "scheduled"):
        run = await bench.start("$.succeed", group=group)
        ended = await bench.until(run, *ENDED)
        bench.edit_record(run, f'"ended_at":{ended.ended_at}', '"ended_at":2000')
    run = await bench.start("$.hang", group="slow")
    bench.edit_record(run, f'"started_at":{run.started_at}', f'"started_at":{run.started_at - 10**9}')
    bench.kept_s = 86_400.0
    runner = bench.again()
    runner.needed = lambda known: {run.id for run in known if run.group == "scheduled"}

    await runner.step()

    assert {run.group for run in runner.runs()} == {"scheduled", "slow"}
    assert set(os.listdir(bench.folder)) == {run.id for run in runner.runs()} | {"drivers"}


@pytest.mark.parametrize("control_is_away", [False, True], ids=["seen", "while control was away"])
async def test_the_work_of_a_killed_driver_goes_with_its_run(bench: Bench, control_is_away: bool) -> None:
    """As the kernel kills it that is out of memory: whole group, no word; what it has spilled is removed."""
    run = await bench.start("$.hang")
    await until(bench.has_child(run))
    work = bench.folder / "drivers" / run.id / "work"
    assert work.is_dir()
    os.killpg(run.pid, signal.SIGKILL)
    if control_is_away:
        bench.again()

    ended = await bench.until(run, *ENDED)

    async def is_gone() -> bool:
        await bench.runner.step()
        return not work.parent.exists()

    assert ended.error is not None
    assert ended.error.condition == "DriverLost"
    await until(is_gone)
    await bench.runners[0].step()  # the parent takes note, too
    assert (bench.folder / run.id / "driver.log").exists()


async def test_the_log_of_a_run_is_read_part_by_part(bench: Bench) -> None:
    """From its end, or from where the last part ended; a run that has written nothing has an empty one."""
    run = await bench.start("$.succeed")
    await bench.until(run, *ENDED)
    log = bench.folder / run.id / "driver.log"
    log.write_bytes("é".encode() * LOG_PART)

    last = bench.runner.log_of(run.id, None)
    parts = [bench.runner.log_of(run.id, after) for after in (0, LOG_PART, 2 * LOG_PART, 99 * LOG_PART)]
    log.unlink()

    assert (last.first, last.next, last.size) == (LOG_PART, 2 * LOG_PART, 2 * LOG_PART)
    assert last.text == "é" * (LOG_PART // 2)
    assert [(part.first, part.next) for part in parts] == [
        *((0, LOG_PART), (LOG_PART, 2 * LOG_PART), (2 * LOG_PART, 2 * LOG_PART), (2 * LOG_PART, 2 * LOG_PART))
    ]
    assert bench.runner.log_of(run.id, None).text == ""
    with pytest.raises(UnknownRun):
        bench.runner.log_of("nobody", None)


def test_two_controls_never_share_a_folder(tmp_path: Path) -> None:
    """Each would take the other's drivers for its own."""
    first, second = RunStore(tmp_path), RunStore(tmp_path)

    with first.reserved(), pytest.raises(RunsInUse, match="BATON_RUNS"), second.reserved():
        pass
    with second.reserved():
        pass
