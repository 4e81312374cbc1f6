"""Runs of jobs that nothing carries out, in every state, for the console: one is always under way."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from services.control.core.runs.run import LogPart, Progress, Run, RunError, Submission
from services.control.http.console.pages.routes import wall_ms
from shared.model.names import DEFAULT_GROUP
from tests.unit.control.http.test_app import InMemoryRunner

MINUTE_MS = 60_000
HOURS = 24
TASKS = 200
LASTS_S = 60


class SimulatedRunner(InMemoryRunner):
    """A `JobRunner` whose runs advance with the clock; those started here take a minute."""

    def __init__(self) -> None:
        super().__init__()
        self._results: dict[str, Any] = {}
        begin = wall_ms()
        lost = RunError(condition="DriverLost", message="the driver was killed by signal 9 without a result")
        self._past("e9920b", "reports", begin - 40 * MINUTE_MS, 9, "failed", error=lost)
        self._past("5d11e8", "lake", begin - 30 * MINUTE_MS, 26, "succeeded", LAKE)
        self._past("b33f00", "maintain", begin - 25 * MINUTE_MS, 12, "cancelled")
        self._past("a41f07", "audit", begin - 20 * MINUTE_MS, 48, "succeeded", AUDIT)
        self._past("c0a93f", "reports", begin - 10 * MINUTE_MS, 21, "succeeded", report(begin))
        self.known["7be210"] = self._run("7be210", "lake", begin - 20_000, {"accept_loss": 0})

    async def start(self, submission: Submission) -> Run:
        run = await super().start(submission)
        self.known[run.id] = msgspec.structs.replace(run, started_at=wall_ms())
        return self.run_of(run.id)

    def runs(self) -> Sequence[Run]:
        return [self.run_of(run.id) for run in super().runs()]

    def run_of(self, run_id: str) -> Run:
        run = super().run_of(run_id)
        return run if run.has_ended else self._advanced(run)

    def result_of(self, run_id: str) -> Any:
        return self._results.get(run_id)

    def log_of(self, run_id: str, after: int | None) -> LogPart:
        run = self.run_of(run_id)
        lines = ((run.ended_at or wall_ms()) - run.started_at) // 1000
        text = "".join(
            f"26/11/23 14:13:{n % 60:02} INFO TaskSetManager: finished task {n}\n" for n in range(lines)
        )
        first = min(after or 0, len(text))
        return LogPart(first=first, next=len(text), size=len(text), text=text[first:])

    async def cancel(self, run_id: str) -> Run:
        run = self.run_of(run_id)
        error = RunError(condition="Cancelled", message="cancelled on request")
        self.known[run_id] = run if run.has_ended else run.ended("cancelled", wall_ms(), error)
        return self.known[run_id]

    def _advanced(self, run: Run) -> Run:
        age_s = (wall_ms() - run.started_at) / 1000
        if age_s > LASTS_S:
            progress = Progress(tasks=TASKS, completed=TASKS)
            run = msgspec.structs.replace(run, progress=progress).ended("succeeded", wall_ms())
            self._results[run.id] = {"lake": LAKE, "audit": AUDIT, "reports": report(wall_ms())}.get(run.job)
            self.known[run.id] = run
            return run
        done = int(TASKS * age_s / LASTS_S)
        state = "running" if age_s > 3 else "starting"
        progress = Progress(tasks=TASKS if age_s > 3 else 0, completed=done, active=4)
        return msgspec.structs.replace(run, state=state, progress=progress)

    def _run(self, run_id: str, job: str, at_ms: int, parameters: dict[str, Any]) -> Run:
        return Run(
            id=run_id,
            job=job,
            group=DEFAULT_GROUP,
            parameters=parameters,
            state="running",
            started_at=at_ms,
            timeout_s=3600,
        )

    def _past(
        self,
        run_id: str,
        job: str,
        at_ms: int,
        took_s: int,
        state: Any,
        result: Any = None,
        error: RunError | None = None,
    ) -> None:
        run = msgspec.structs.replace(
            self._run(run_id, job, at_ms, {}), progress=Progress(tasks=88, completed=88)
        )
        self.known[run_id] = run.ended(state, at_ms + took_s * 1000, error)
        if result is not None:
            self._results[run_id] = result


LAKE = {"added": 18_204, "sessions": 1_842_310, "version": 61}
AUDIT = {
    "verdict": "exact",
    "part": "everything",
    "delivery": "exactly_once",
    "judged": 1_842_310,
    "missing": 0,
    "overdue": 0,
    "extra": 0,
    "different": 0,
    "open": 23_871,
    "not_judged": 0,
    "fragments": 22_107_940,
    "cut_streams": 0,
    "left_out": [],
    "examples": [],
}


def report(at_ms: int) -> dict[str, Any]:
    """A report of the last day that was made then, as the job `reports` returns it."""
    first = at_ms // 3_600_000 - HOURS + 1
    hours = [_hour((first + n) * 3_600_000, n) for n in range(HOURS)]
    paths = ("/", "/shoes", "/search", "/cart", "/shoes/4711", "/checkout", "/account")
    items = [
        {
            "path": "$.data.path",
            "item": path,
            "count": 214_310 * 10 // (10 + 4 * n),
            "sessions": 9,
            "place": n + 1,
        }
        for n, path in enumerate(paths)
    ]
    return {
        "report": "default",
        "sessions_version": 61,
        "zone": "UTC",
        "item_paths": ["$.data.path"],
        "hours": hours,
        "days": [hours[0] | {"sessions": 1_100_000}],
        "items": items,
        "entries": items[:3],
        "exits": items[2:5],
    }


def _hour(start_ms: int, n: int) -> dict[str, Any]:
    share = 0.12 if n == HOURS - 1 else 1.0
    sessions = int((45_000 + 34_000 * math.cos(n / 3.9)) * share)
    return {
        "start": datetime.fromtimestamp(start_ms / 1000, UTC).isoformat().replace("+00:00", "Z"),
        "sessions": sessions,
        "fragments": sessions * 12,
        "duration_ms_p50": 240_000 + n % 5 * 9_000,
        "duration_ms_p90": 1_400_000 + n % 4 * 40_000,
        "duration_ms_p99": 4_300_000 + n % 3 * 90_000,
        "ended_end": sessions * 61 // 100,
        "ended_gap": sessions * 38 // 100,
        "ended_limit": sessions // 100,
        "keys_new": sessions // 2,
        "keys_returning": sessions // 3,
    }
