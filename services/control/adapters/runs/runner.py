"""Runs Spark programs, each in its own process group, and keeps their records on disk.

It looks at files, processes and Spark's REST API, and does what `core/runs/run.py` decides. A driver whose
run has succeeded waits for the next one (`drivers.py`). A restarted control resumes all its runs, including
those whose driver is still alive. A control that stops leaves its drivers running for the next one, unless it
is told to end them.
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
import sys
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import msgspec

from services.control.adapters.runs.drivers import SparkDrivers
from services.control.adapters.runs.place import SparkPlace
from services.control.adapters.runs.process_group import ProcessGroup
from services.control.adapters.runs.progress import read_progress
from services.control.adapters.runs.store import RunStore
from services.control.core.runs.run import (
    DriverState,
    JobAlreadyRunning,
    LogPart,
    Run,
    RunError,
    Submission,
    UnknownRun,
    cancelled,
    decide,
)
from shared.errors import SparkUnavailable
from shared.together import together

POLL_S = 0.2
FORGET_EVERY_MS = 60_000
DRIVER = (sys.executable, "-m", "services.control.spark.driver")
"""The program of every run; its one argument is the run's folder."""

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Watched:
    """A run that has not ended, with its processes; hold `lock` to decide about it.

    `is_cancelled`: the run ends as cancelled, even if its dying driver looks lost meanwhile.
    """

    run: Run
    processes: ProcessGroup
    is_cancelled: bool = False
    published_at: int | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class SparkRunner:
    """A `JobRunner`. `run()` watches until cancelled; `stop()` then ends all drivers, or leaves them.

    `idle_s`: how long a driver waits for another run.
    """

    def __init__(
        self,
        store: RunStore,
        place: SparkPlace,
        http: httpx.AsyncClient,
        *,
        timeout_s: float,
        kept: int,
        idle_s: float = 0.0,
        kept_s: float = math.inf,
        driver: Sequence[str] = DRIVER,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._store = store
        self._place = place
        self._http = http
        self._timeout_s = timeout_s
        self._kept = kept
        self._kept_s = kept_s
        self._forget_at_ms = 0
        self.needed: Callable[[Sequence[Run]], Collection[str]] = lambda _: ()
        """Returns which of all runs must not be forgotten; set it before `run`."""
        self._drivers = SparkDrivers(store.folder, place, driver, idle_s)
        self._now_ms = now_ms
        self._runs = {run.id: run for run in store.load()}
        self._watched = {run.id: self._resumed(run) for run in self._runs.values() if not run.has_ended}

    def __repr__(self) -> str:
        return f"<SparkRunner, {len(self._watched)} of {len(self._runs)} runs under way>"

    def runs(self) -> list[Run]:
        """All remembered runs, newest first."""
        return sorted(self._runs.values(), key=lambda run: (run.started_at, run.id), reverse=True)

    def run_of(self, run_id: str) -> Run:
        """The run. Raises UnknownRun."""
        if run_id not in self._runs:
            raise UnknownRun(f"there is no run {run_id!r}")
        return self._runs[run_id]

    def result_of(self, run_id: str) -> Any:
        """The result of a run that has succeeded, else None. Raises UnknownRun."""
        return self._store.result(run_id) if self.run_of(run_id).state == "succeeded" else None

    def log_of(self, run_id: str, after: int | None) -> LogPart:
        """A part of the run's log: from byte `after` on, or (None) its end. Raises UnknownRun."""
        return self._store.log(self.run_of(run_id).id, after)

    async def start(self, submission: Submission) -> Run:
        """A new run, its driver started. Raises JobAlreadyRunning, SparkUnavailable."""
        # two runs of a job in a group would write the same tables
        for other in self._watched.values():
            if (other.run.job, other.run.group) == (submission.job, submission.group):
                raise JobAlreadyRunning(other.run.id, submission.job)
        now_ms = self._now_ms()
        run = Run(
            id=_new_id(now_ms),
            job=submission.job,
            group=submission.group,
            parameters=submission.parameters,
            state="starting",
            started_at=now_ms,
            timeout_s=min(submission.timeout_s or self._timeout_s, self._timeout_s),
            scheduled=submission.scheduled,
            **msgspec.structs.asdict(submission.cause),
        )
        try:
            request = self._place.request(
                run, submission, self._drivers.folder_of(run.id).path, idle_s=self._drivers.idle_s
            )
            self._store.create(run, request)
            run, processes = self._give(run)
        except OSError as error:
            self._store.remove(run.id)
            raise SparkUnavailable(f"the driver cannot be started: {error}") from None
        self._watched[run.id] = _Watched(run, processes)
        self._keep(run)
        self.forget_old()
        logger.info("run started", extra={"run": run.id, "job": run.job, "group": run.group, "pid": run.pid})
        return run

    async def cancel(self, run_id: str) -> Run:
        """Ends the run and all its processes in less than 2 s; an ended run is returned unchanged.

        Raises UnknownRun.
        """
        return await self._cancel(run_id, "the run was cancelled on request")

    async def run(self) -> None:
        """Watches the runs until cancelled."""
        while True:
            await self.step()
            await asyncio.sleep(POLL_S)

    async def step(self) -> None:
        """Looks at every run that has not ended, and takes its next step."""
        await together(self._look_after(watched) for watched in list(self._watched.values()))
        if self._now_ms() >= self._forget_at_ms:
            self._forget_at_ms = self._now_ms() + FORGET_EVERY_MS
            self.forget_old()
        self._drivers.end_surplus()
        self._drivers.remove_dead({watched.run.driver for watched in self._watched.values()})

    async def stop(self) -> None:
        """Ends every run under way, and the drivers that wait, in less than 2 s."""
        why = "control was stopped"
        await together(self._cancel(run_id, why) for run_id in list(self._watched))
        await self._drivers.end_all()

    def forget_old(self) -> None:
        """Forgets ended runs that are too many or too old, and removes their folders."""
        every = self.runs()
        ended = [run for run in every if run.has_ended]
        oldest_ms = self._now_ms() - self._kept_s * 1000
        surplus = {
            run.id for at, run in enumerate(ended) if at >= self._kept or (run.ended_at or 0) < oldest_ms
        }
        for run_id in surplus.difference(self.needed(every)) if surplus else ():
            del self._runs[run_id]
            self._store.remove(run_id)

    async def _cancel(self, run_id: str, why: str) -> Run:
        self.run_of(run_id)
        watched = self._watched.get(run_id)
        if watched is not None and (seen := self._see(watched)).has_published and seen.has_released:
            await self._look_after(watched)  # it has an outcome, and its driver may work on another run
        elif watched is not None:
            watched.is_cancelled = True
            # before taking the lock: its holder may be waiting for Spark's UI
            await self._end(watched)
            async with watched.lock:
                if not watched.run.has_ended:
                    self._conclude(watched, cancelled(watched.run, self._see(watched), why))
        return self.run_of(run_id)

    async def _look_after(self, watched: _Watched) -> None:
        async with watched.lock:
            if watched.run.has_ended or watched.is_cancelled:
                return
            step = decide(watched.run, self._see(watched))
            # the processes first: a run that has ended must not leave any
            if step.kill:
                await self._end(watched)
            if step.run.has_ended:
                self._conclude(watched, step.run)
                return
            if step.restart:
                self._replace_driver(watched, step.run)
                return
            driver = self._store.driver(watched.run.id)
            progress = await read_progress(self._http, driver) if driver else None
            run = msgspec.structs.replace(step.run, progress=progress or step.run.progress)
            if run != watched.run:
                watched.run = run
                self._keep(run)

    def _see(self, watched: _Watched) -> DriverState:
        run_id, now_ms = watched.run.id, self._now_ms()
        # the process first: once the driver is dead, its files are final
        alive = watched.processes.is_alive()
        has_result, error = self._store.has_result(run_id), self._store.error(run_id)
        if watched.published_at is None and (has_result or error):
            watched.published_at = now_ms
        return DriverState(
            at_ms=now_ms,
            alive=alive,
            is_up=self._store.driver(run_id) is not None,
            has_result=has_result,
            error=error,
            exit_code=watched.processes.exit_code,
            last_words="" if alive else self._store.last_words(run_id),
            published_at=watched.published_at,
            has_released=self._drivers.has_released(watched.run.driver, run_id),
            has_begun=self._drivers.has_begun(watched.run.driver, run_id),
        )

    async def _end(self, watched: _Watched) -> None:
        if not await watched.processes.end():
            logger.error("processes survive SIGKILL", extra={"run": watched.run.id, "group": watched.run.pid})

    def _resumed(self, run: Run) -> _Watched:
        """A run that an earlier control has left, also one that died before it knew the driver's pid."""
        processes = ProcessGroup(run.pid, run.born)
        if not run.pid:
            driver = run.driver or run.id
            found = self._drivers.find(driver, self._store.folder_of(run.id))
            if found is not None:
                run, processes = _driven(run, driver, found), found
                self._keep(run)
        return _Watched(run, processes)

    def _give(self, run: Run) -> tuple[Run, ProcessGroup]:
        """The run with a driver that waited for one, else with a new one. Raises OSError."""
        for driver, processes in self._drivers.waiting():
            self._store.save(_driven(run, driver))
            if self._drivers.folder_of(driver).give(self._store.folder_of(run.id)):
                return _driven(run, driver, processes), processes
        return self._start_driver(run)

    def _start_driver(self, run: Run) -> tuple[Run, ProcessGroup]:
        """The run with a new driver of its own. Raises OSError."""
        self._store.save(_driven(run, run.id))
        processes = self._drivers.start(run.id, self._store.folder_of(run.id))
        return _driven(run, run.id, processes), processes

    def _replace_driver(self, watched: _Watched, run: Run) -> None:
        """Starts a new driver for a run that a waiting driver has not begun."""
        logger.warning("driver replaced", extra={"run": run.id, "driver": run.driver})
        try:
            watched.run, watched.processes = self._start_driver(run)
        except OSError as error:
            failure = RunError(condition="SparkUnavailable", message=f"no driver can be started: {error}")
            self._conclude(watched, run.ended("failed", self._now_ms(), failure))
            return
        self._keep(watched.run)

    def _conclude(self, watched: _Watched, run: Run) -> None:
        watched.run = run
        self._watched.pop(run.id, None)
        self._keep(run)
        why = run.error.message if run.error else None
        logger.info("run ended", extra={"run": run.id, "job": run.job, "state": run.state, "why": why})

    def _keep(self, run: Run) -> None:
        self._runs[run.id] = run
        try:
            self._store.save(run)
        except OSError as error:
            logger.exception("run record not written", extra={"run": run.id, "why": str(error)})


def _driven(run: Run, driver: str, processes: ProcessGroup | None = None) -> Run:
    """The run with its driver. Without processes it is about to get this driver: once that is on disk, the
    next control finds the driver, or starts another one.
    """
    pid, born = (processes.leader, processes.born) if processes else (0, "")
    # a driver has the name of its first run
    is_handed_over = processes is None or driver != run.id
    return msgspec.structs.replace(run, pid=pid, born=born, driver=driver, is_handed_over=is_handed_over)


def _new_id(now_ms: int) -> str:
    at = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now_ms / 1000))
    return f"{at}-{secrets.token_hex(4)}"
