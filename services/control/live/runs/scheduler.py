"""Starts the runs that `core/runs/schedules.py` says are due.

It keeps no state that must survive a restart. If a user has already started a run of the job, the scheduled
one waits; that is not a failure.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Sequence

from services.control.core.causes import Cause
from services.control.core.runs.run import JobAlreadyRunning, Run
from services.control.core.runs.schedules import Retry, Schedule, ScheduleRow, Start, due, needed, rows_of
from services.control.live.acts.actions import Actions
from services.control.live.runs.submissions import submission_for
from services.control.live.view.cluster_view import ClusterView
from services.control.ports import JobRunner
from shared.errors import BatonError

LOOK_EVERY_S = 1.0

logger = logging.getLogger(__name__)


class Scheduler:
    """`run()` starts runs until cancelled; `rows()` returns the state of the schedules."""

    def __init__(
        self,
        schedules: Sequence[Schedule],
        runner: JobRunner,
        view: ClusterView,
        actions: Actions,
        retry: Retry,
        *,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._schedules = tuple(schedules)
        self._runner = runner
        self._view = view
        self._actions = actions
        self._retry = retry
        self._now_ms = now_ms
        self._refused: dict[str, str] = {}
        """By schedule, the last reason why its run could not be started; each reason is logged once."""
        self._not_before: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<Scheduler of {', '.join(schedule.name for schedule in self._schedules) or 'nothing'}>"

    async def run(self) -> None:
        """Starts what is due, every LOOK_EVERY_S, until cancelled."""
        while True:
            await self.step()
            await asyncio.sleep(LOOK_EVERY_S)

    async def step(self) -> None:
        """Starts what is due."""
        for start in due(self._schedules, self._runner.runs(), self._now_ms(), self._retry):
            if self._now_ms() >= self._not_before.get(start.scheduled.schedule, 0):
                await self._start(start)

    def rows(self) -> list[ScheduleRow]:
        """The schedules, in the order of the setting."""
        return rows_of(self._schedules, self._runner.runs(), self._now_ms(), self._retry)

    def needed(self, runs: Sequence[Run]) -> Collection[str]:
        """The runs that must not be forgotten yet."""
        return needed(self._schedules, runs)

    async def _start(self, start: Start) -> None:
        name = start.scheduled.schedule
        try:
            submission = submission_for(
                self._view, start.job, start.group, start.parameters, scheduled=start.scheduled
            )
            run = await self._runner.start(submission)
        except JobAlreadyRunning:
            return
        except BatonError as error:
            if self._refused.get(name) != error.detail:
                logger.warning("scheduled run not started", extra={"schedule": name, "why": error.detail})
            self._refused[name] = error.detail
            self._not_before[name] = self._now_ms() + self._retry.pause_ms(0)
        else:
            self._refused.pop(name, None)
            # no token has a name with a space, so nobody can pass for a schedule
            self._actions.report_run(run, Cause(who=f"schedule {name}"), "run")
