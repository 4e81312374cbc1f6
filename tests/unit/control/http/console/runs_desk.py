"""A browser at control without a browser, and runs in every state for it to look at."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import httpx

from services.control.core.runs.run import Progress, Run, RunState
from services.control.core.runs.schedules import Schedule
from shared.model.events import Event
from tests.unit.control.http.console.browser import browser_of
from tests.unit.control.http.test_app import InMemoryRunner, app_of
from tests.unit.control.sources import small_baton

NOW_MS = 7_200_000
EVIL = "<script>alert('x')</script>"
EXACT: dict[str, Any] = {
    "verdict": "exact",
    "part": "everything",
    "delivery": "exactly_once",
    "judged": 1200,
    "fragments": 9000,
    "open": 3,
}
DIFFERS = EXACT | {
    "verdict": "differs",
    "missing": 3,
    "extra": 1,
    "examples": [{"kind": "missing", "id": "s1", "stream": 7, "key": EVIL, "detail": "offsets 1 … 2"}],
}


@dataclass
class Runs(InMemoryRunner):
    """A runner with results."""

    results: dict[str, Any] = field(default_factory=dict)

    def result_of(self, run_id: str) -> Any:
        return self.results.get(run_id)

    def add(
        self, job: str, state: RunState, result: Any = None, *, group: str = "default", **more: Any
    ) -> str:
        """Adds a run, the newest."""
        run = Run(
            id=f"r{len(self.known)}",
            job=job,
            group=group,
            parameters=more.pop("parameters", {}),
            state="running",
            started_at=NOW_MS - 60_000,
            timeout_s=60,
            progress=more.pop("progress", Progress(tasks=8, completed=2, active=1)),
        )
        is_over = state in ("succeeded", "failed", "cancelled")
        self.known[run.id] = run.ended(state, NOW_MS - 30_000, more.get("error")) if is_over else run
        self.results[run.id] = result
        return run.id


@dataclass
class RunsDesk:
    """A browser at control, the runs that it shows, and what control reports."""

    runs: Runs
    events: list[Event]
    http: httpx.AsyncClient


async def runs_desk() -> RunsDesk:
    """A desk without any run."""
    runs, events = Runs(), list[Event]()
    schedules = [Schedule(jobs=("lake", "reports"), every_s=900)]
    app = await app_of(small_baton(), runs, schedules=schedules, events=events)
    return RunsDesk(runs, events, browser_of(app))


def a_run(job: str, state: RunState = "succeeded", progress: Progress | None = None) -> Run:
    """A run that began in 1970."""
    return Run(
        id="a",
        job=job,
        group="g",
        parameters={},
        state=state,
        started_at=0,
        timeout_s=1,
        progress=progress or Progress(),
    )
