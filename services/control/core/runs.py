"""The life of a run: starting → running → succeeded, failed or cancelled; decided from what is seen.

Pure. `decide` is the whole state machine: from the record, what the driver left in its folder, whether
its processes live, and the time, it returns what to do next. `adapters/spark_runner.py` looks and does.

    starting ── driver.json ──► running ── result.json ──► succeeded
        │                          │ ├──── error.json, died, took too long ──► failed
        └────── (the same) ────────┘ └──── asked for ──► cancelled
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from shared.errors import Conflict, InvariantBroken, NotFound

RunState = Literal["starting", "running", "succeeded", "failed", "cancelled"]
ENDED: frozenset[RunState] = frozenset({"succeeded", "failed", "cancelled"})

GRACE_MS = 10_000
"""How long a driver that has published its result or error may take to end by itself."""


class UnknownRun(NotFound):
    """There is no run of that id."""


class JobAlreadyRunning(Conflict):
    """A run of this job in this group has not ended yet."""


class IllegalTransition(InvariantBroken):
    """A run that has ended cannot change."""


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """Spark's own counts of tasks, summed over the run's Spark jobs so far."""

    tasks: int = 0
    completed: int = 0
    active: int = 0
    failed: int = 0


class RunError(msgspec.Struct, frozen=True, kw_only=True):
    """Why a run failed: a condition that programs may test, and a sentence."""

    condition: str
    message: str


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One execution of a job, as it is kept on disk; times in ms since the epoch.

    `pid` is also the number of the driver's process group; `born` tells it from a later process of the
    same number. `timeout_s` is the run's wall-clock limit.
    """

    id: str
    job: str
    group: str
    parameters: dict[str, str | int]
    state: RunState
    started_at: int
    timeout_s: float
    progress: Progress = Progress()
    ended_at: int | None = None
    error: RunError | None = None
    pid: int = 0
    born: str = ""

    @property
    def has_ended(self) -> bool:
        """Whether nothing will change any more."""
        return self.state in ENDED

    def ended(self, state: RunState, at_ms: int, error: RunError | None = None) -> Run:
        """This run, ended so. Raises IllegalTransition when it has ended before.

        No task is active any more, and none is left of a success: Spark did not need the others.
        """
        if self.has_ended:
            raise IllegalTransition(f"run {self.id} is {self.state} and cannot become {state}")
        completed = self.progress.completed
        tasks = completed if state == "succeeded" else self.progress.tasks
        progress = msgspec.structs.replace(self.progress, active=0, tasks=tasks)
        return msgspec.structs.replace(self, state=state, ended_at=at_ms, error=error, progress=progress)


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What there is of a run's driver: its files, its processes, and the exit code.

    `alive`: the driver itself; `is_up`: it told that Spark is up; `exit_code`: None while alive or when
    another process was its parent; `published_at`: when a result or an error was first seen (ms).
    """

    at_ms: int
    alive: bool
    is_up: bool = False
    has_result: bool = False
    error: RunError | None = None
    exit_code: int | None = None
    last_words: str = ""
    published_at: int | None = None


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What to do: first, when `kill`, leave no process of the group; then write `run`."""

    run: Run
    kill: bool = False


def decide(run: Run, seen: Seen) -> Step:
    """The next step of a run that has not ended. A published result or error is the truth; without
    one, a dead driver is DriverLost and one past its limit RunTimeout.
    """
    if seen.has_result or seen.error:
        lingers = seen.published_at is not None and seen.at_ms - seen.published_at > GRACE_MS
        if seen.alive and not lingers:
            return Step(run=run)
        return Step(run=verdict(run, seen), kill=True)
    if not seen.alive:
        return Step(run=verdict(run, seen), kill=True)
    if seen.at_ms - run.started_at > run.timeout_s * 1000:
        message = f"the run took longer than its limit of {run.timeout_s:g} s"
        return Step(
            run=run.ended("failed", seen.at_ms, RunError(condition="RunTimeout", message=message)), kill=True
        )
    if run.state == "starting" and seen.is_up:
        return Step(run=msgspec.structs.replace(run, state="running"))
    return Step(run=run)


def verdict(run: Run, seen: Seen) -> Run:
    """The run, ended by what its driver left behind."""
    if seen.has_result:
        return run.ended("succeeded", seen.at_ms)
    return run.ended("failed", seen.at_ms, seen.error or _lost(seen))


def cancelled(run: Run, seen: Seen, why: str) -> Run:
    """The run after its processes were ended on request; a result published before that stands."""
    if seen.has_result:
        return run.ended("succeeded", seen.at_ms)
    return run.ended("cancelled", seen.at_ms, RunError(condition="Cancelled", message=why))


def public(run: Run, result: Any = None) -> dict[str, Any]:
    """The run as the API shows it; `result` is the driver's, None until it has succeeded."""
    shown: dict[str, Any] = msgspec.to_builtins(run)
    for hidden in ("pid", "born"):
        del shown[hidden]
    return shown | {"result": result}


def _lost(seen: Seen) -> RunError:
    how = "is gone" if seen.exit_code is None else _ending(seen.exit_code)
    words = f"; its last words: {seen.last_words}" if seen.last_words else ""
    return RunError(condition="DriverLost", message=f"the driver {how} without a result{words}")


def _ending(exit_code: int) -> str:
    return f"was ended by signal {-exit_code}" if exit_code < 0 else f"ended with exit code {exit_code}"
