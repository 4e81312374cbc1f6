"""The life of a run: starting → running → succeeded, failed or cancelled.

Pure. `decide` is the whole state machine: from the record, the files in the run's folder, whether the
driver is alive, and the time, it returns the next step. `adapters/runs/runner.py` looks and acts.

    starting ── driver.json ──► running ── result.json ──► succeeded
        │                          │ ├──── error.json, death, time-out ──► failed
        └────── (the same) ────────┘ └──── cancel ──► cancelled
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from services.control.core.causes import NOBODY, Cause
from shared.errors import Conflict, InvariantBroken, NotFound
from shared.model.group import GroupSettings
from shared.model.start import GroupStart

RunState = Literal["starting", "running", "succeeded", "failed", "cancelled"]
ENDED: frozenset[RunState] = frozenset({"succeeded", "failed", "cancelled"})

TAKE_OVER_MS = 10_000
"""How long a waiting driver may take to begin the run that it was given.

On a cluster it first needs an executor, which takes some seconds to start. How long it then waits for the
run's lock does not count: on an object store another run may hold the lock for minutes."""
GRACE_MS = 10_000
"""How long a driver may take to exit after it has published its result or error."""


class UnknownRun(NotFound):
    """There is no run of that id."""


class JobAlreadyRunning(Conflict):
    """A run of this job is still under way in this group."""

    def __init__(self, run_id: str, job: str) -> None:
        super().__init__(f"run {run_id} of job {job!r} has not ended yet", members={"run": run_id})


class IllegalTransition(InvariantBroken):
    """A run that has ended cannot change."""


class ScheduledFor(msgspec.Struct, frozen=True, kw_only=True):
    """A run's place in its schedule; `schedules.py` explains slot, step and attempt."""

    schedule: Annotated[str, Meta(description="the schedule's name")]
    slot: Annotated[int, Meta(description="when the round was due (ms UTC)")]
    step: Annotated[int, Meta(description="the job's place in the schedule, from 0")]
    attempt: Annotated[int, Meta(description="0, or the number of the retry")]


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """A run that a user asks for: a job with complete parameters, and the group that it works on.

    `settings` and `streams` are the group's; `timeout_s` can only shorten the limit of all runs.
    `stream_table`: its JSON, or "". `chain`: the group's start, that of the group it follows, and so on.
    """

    job: str
    group: str
    parameters: dict[str, str | int]
    settings: GroupSettings
    streams: int
    stream_table: str = ""
    chain: list[GroupStart] = []
    timeout_s: float | None = None
    scheduled: ScheduledFor | None = None
    cause: Cause = NOBODY


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """Spark's own counts of tasks, summed over the run's Spark jobs so far."""

    tasks: int = 0
    completed: int = 0
    active: int = 0
    failed: int = 0


class RunError(msgspec.Struct, frozen=True, kw_only=True):
    """Why a run failed: a condition for programs to test, and a sentence for people."""

    condition: Annotated[str, Meta(description="Spark's error condition, or one of Baton's own")]
    message: str


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One execution of a job, as lists show it."""

    id: str
    job: str
    group: str
    parameters: dict[str, str | int]
    state: RunState
    started_at: Annotated[int, Meta(description="ms UTC")]
    timeout_s: Annotated[float, Meta(description="wall-clock limit")]
    progress: Progress = Progress()
    ended_at: Annotated[int | None, Meta(description="ms UTC")] = None
    error: RunError | None = None
    scheduled: Annotated[ScheduledFor | None, Meta(description="null: a user started it")] = None
    who: Annotated[str, Meta(description="whose token started it; empty for a schedule")] = ""
    reason: Annotated[str, Meta(description="why they did, in their words")] = ""


class RunDetail(RunSummary, frozen=True, kw_only=True):
    """One execution of a job, with its result."""

    result: Annotated[dict[str, Any] | None, Meta(description="the job's; null until it has succeeded")]


class LogPart(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a run's log, as text."""

    first: Annotated[int, Meta(description="byte of the log at which the part begins")]
    next: Annotated[int, Meta(description="byte at which the next part begins: pass it as `after`")]
    size: Annotated[int, Meta(description="bytes in the log so far")]
    text: Annotated[str, Meta(description="bytes that are not UTF-8 are replaced")]


class Run(RunSummary, frozen=True, kw_only=True):
    """The record of a run on disk: what the API shows, and its process.

    `pid` is also the number of the driver's process group; `born` distinguishes the driver from a later
    process with the same number. `driver` names its folder. `is_handed_over`: the run was given to a waiting
    driver, which has not begun it yet, or is about to get a driver. `key`, `request`: those of `Cause`.
    """

    pid: int = 0
    born: str = ""
    driver: str = ""
    is_handed_over: bool = False
    key: str = ""
    request: str = ""

    @property
    def has_ended(self) -> bool:
        """Whether the run is final."""
        return self.state in ENDED

    def ended(self, state: RunState, at_ms: int, error: RunError | None = None) -> Run:
        """This run in its final state. Raises IllegalTransition if it has already ended.

        No task remains active. A success counts as complete: Spark skips stages that it does not need.
        """
        if self.has_ended:
            raise IllegalTransition(f"run {self.id} is {self.state} and cannot become {state}")
        completed = self.progress.completed
        tasks = completed if state == "succeeded" else self.progress.tasks
        progress = msgspec.structs.replace(self.progress, active=0, tasks=tasks)
        return msgspec.structs.replace(self, state=state, ended_at=at_ms, error=error, progress=progress)


class DriverState(msgspec.Struct, frozen=True, kw_only=True):
    """A run's driver as it was seen: its files, its process, and the exit code.

    `is_up`: the driver has reported that Spark is up, and that it has the run's lock. `has_begun`: it has
    reported that it needs nothing more but perhaps this lock. `exit_code`: None while it is alive, or when an
    earlier control process was its parent. `published_at`: when its result or error was first seen (ms).
    `has_released`: the driver is done with this run: it waits, or works on another one.
    """

    at_ms: int
    alive: bool
    is_up: bool = False
    has_begun: bool = False
    has_result: bool = False
    error: RunError | None = None
    exit_code: int | None = None
    last_words: str = ""
    published_at: int | None = None
    has_released: bool = False

    @property
    def has_published(self) -> bool:
        """Whether the run's outcome is known."""
        return self.has_result or self.error is not None


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What to do next: if `kill`, first end every process of the run's group; then save `run`.

    `restart`: then start a new driver for it.
    """

    run: Run
    kill: bool = False
    restart: bool = False


def decide(run: Run, seen: DriverState) -> Step:
    """The next step of a run that has not ended.

    A published result or error decides. Without one, a dead driver is DriverLost, and a run past its limit
    is RunTimeout. A driver that is gone may leave its JVM and Python workers behind, so every end kills what
    remains of its process group, unless the driver waits or works on another run. A waiting driver that does
    not begin the run in time, or dies before the run has its lock, is replaced.
    """
    has_published = seen.has_published
    if has_published and seen.alive and seen.has_released:
        return Step(run=_verdict(run, seen))
    if run.is_handed_over and not has_published:
        if seen.is_up:
            return Step(run=msgspec.structs.replace(run, is_handed_over=False))
        is_late = seen.at_ms - run.started_at > TAKE_OVER_MS and not seen.has_begun
        if not seen.alive or is_late:
            return Step(run=msgspec.structs.replace(run, is_handed_over=False), kill=True, restart=True)
    lingers = seen.published_at is not None and seen.at_ms - seen.published_at > GRACE_MS
    if not seen.alive or lingers:
        return Step(run=_verdict(run, seen), kill=True)
    if has_published:
        return Step(run=run)
    if seen.at_ms - run.started_at > run.timeout_s * 1000:
        message = f"the run exceeded its limit of {run.timeout_s:g} s"
        error = RunError(condition="RunTimeout", message=message)
        return Step(run=run.ended("failed", seen.at_ms, error), kill=True)
    if run.state == "starting" and seen.is_up:
        return Step(run=msgspec.structs.replace(run, state="running"))
    return Step(run=run)


def cancelled(run: Run, seen: DriverState, why: str) -> Run:
    """The run after its processes were ended on request; what was published before that counts."""
    if seen.has_published:
        return _verdict(run, seen)
    return run.ended("cancelled", seen.at_ms, RunError(condition="Cancelled", message=why))


def summary_of(run: Run) -> RunSummary:
    """The run without what only control needs to know."""
    return msgspec.convert(run, RunSummary, from_attributes=True)


def detail_of(run: Run, result: dict[str, Any] | None = None) -> RunDetail:
    """The run as the API shows it, with its result."""
    return RunDetail(**msgspec.structs.asdict(summary_of(run)), result=result)


def _verdict(run: Run, seen: DriverState) -> Run:
    if seen.has_result:
        return run.ended("succeeded", seen.at_ms)
    return run.ended("failed", seen.at_ms, seen.error or _lost(seen))


def _lost(seen: DriverState) -> RunError:
    if seen.exit_code is None:
        how = "is gone"
    elif seen.exit_code < 0:
        how = f"was killed by signal {-seen.exit_code}"
    else:
        how = f"exited with code {seen.exit_code}"
    words = f"; its last output: {seen.last_words}" if seen.last_words else ""
    return RunError(condition="DriverLost", message=f"the driver {how} without a result{words}")
