"""Runs that have ended, and one under way, in the folder from which control reads them when it starts.

No Spark has worked: the records, results and logs are written as control and its drivers write them. So Jobs,
a run and Reports show what they are for, in seconds.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from bench.simulated_runs import AUDIT, LAKE, report
from cli.stack.processes.leash import on_leash
from services.control.adapters.runs.process_group import born_of
from services.control.adapters.runs.store import RunStore
from services.control.core.runs.run import Progress, Run, RunError, RunState, ScheduledFor
from services.control.spark.run.request import RunRequest
from shared.model.group import GroupSettings
from shared.model.names import DEFAULT_GROUP

MINUTE_MS: Final = 60_000
WEEK_MS: Final = 7 * 86_400_000
SCHEDULES: Final = "lake,reports every 7d; audit every 7d"
"""This week's rounds are over, so none of them starts Spark."""
SOUND, UNSOUND, LOST, MADE, UNDER_WAY = "past-sound", "past-unsound", "past-lost", "past-made", "past-now"
DIFFERS: Final = AUDIT | {
    "verdict": "differs",
    "missing": 3,
    "examples": [
        {
            "kind": "missing",
            "stream": 3,
            "key": f"visitor-{n}",
            "id": f"{n:032x}",
            "detail": "recomputed from the log, but not delivered",
        }
        for n in range(3)
    ],
}
CRASH: Final = RunError(condition="DriverLost", message="the driver was killed by signal 9 without a result")


class PastRuns:
    """Writes runs into the folder; `now_ms` is the end of the past."""

    def __init__(self, folder: Path, now_ms: int) -> None:
        self._store = RunStore(folder)
        self._now_ms = now_ms

    def __repr__(self) -> str:
        return f"<PastRuns in {self._store.folder}>"

    def write(self) -> None:
        """Two audits, a report and its table's run, one run that was cancelled, and one whose driver died."""
        made = report(self._now_ms - 29 * MINUTE_MS)
        self._ended(UNSOUND, "audit", 300, 51, result=DIFFERS)
        self._ended(LOST, "reports", 55, 9, "failed", error=CRASH)
        self._ended("past-kept", "maintain", 45, 12, "cancelled", who="ann", reason="the disk was full")
        self._ended("past-lake", "lake", 30, 26, result=LAKE, scheduled=("lake,reports", 0))
        self._ended(MADE, "reports", 29, 21, result=made, scheduled=("lake,reports", 1))
        self._ended(SOUND, "audit", 20, 48, result=AUDIT, scheduled=("audit", 0))

    @contextlib.contextmanager
    def under_way(self) -> Iterator[None]:
        """A run of `maintain` that goes on during the block; its process only sleeps."""
        sleeper = subprocess.Popen(on_leash(["sleep", "3600"]), start_new_session=True)
        try:
            run = msgspec.structs.replace(
                self._run(UNDER_WAY, "maintain", 1),
                state="running",
                progress=Progress(tasks=200, completed=132, active=4),
                who="ann",
                pid=sleeper.pid,
                born=born_of(sleeper.pid),
                driver=UNDER_WAY,
            )
            self._keep(run, {})
            (self._store.folder_of(run.id) / "driver.json").write_text(f'{{"pid": {sleeper.pid}}}')
            yield
        finally:
            sleeper.terminate()
            sleeper.wait()

    def _ended(
        self,
        run_id: str,
        job: str,
        minutes: int,
        took_s: int,
        state: RunState = "succeeded",
        *,
        result: dict[str, Any] | None = None,
        error: RunError | None = None,
        scheduled: tuple[str, int] | None = None,
        **about: Any,
    ) -> None:
        run = self._run(run_id, job, minutes)
        if scheduled:
            slot = self._now_ms // WEEK_MS * WEEK_MS
            place = ScheduledFor(schedule=scheduled[0], slot=slot, step=scheduled[1], attempt=0)
            about["scheduled"] = place
        done = Progress(tasks=88, completed=88 if state == "succeeded" else 31)
        run = msgspec.structs.replace(run, progress=done, **about)
        self._keep(run.ended(state, run.started_at + took_s * 1000, error), result)

    def _run(self, run_id: str, job: str, minutes: int) -> Run:
        return Run(
            id=run_id,
            job=job,
            group=DEFAULT_GROUP,
            parameters={},
            state="running",
            started_at=self._now_ms - minutes * MINUTE_MS,
            timeout_s=3600,
        )

    def _keep(self, run: Run, result: dict[str, Any] | None) -> None:
        request = RunRequest(
            id=run.id, job=run.job, kafka="", lake="", jars="", group_settings=GroupSettings(), streams=1
        )
        self._store.create(run, request)
        folder = self._store.folder_of(run.id)
        lines = (f"26/11/23 14:13:{n:02} INFO TaskSetManager: finished task {n}\n" for n in range(40))
        (folder / "driver.log").write_text("".join(lines))
        if result:
            (folder / "result.json").write_bytes(msgspec.json.encode(result))
