"""Starts the runs that people and programs ask for: each request once, and with an event that says who.

Used by the API and by the console's form. What a schedule starts goes past this; it has no key.
"""

from __future__ import annotations

import asyncio

from services.control.core.causes import Cause, cause_of
from services.control.core.runs.run import Run
from services.control.live.acts.actions import Actions
from services.control.live.runs.submissions import submission_for
from services.control.live.view.cluster_view import ClusterView
from services.control.ports import JobRunner


class RunStarts:
    """Starts runs of `runner` in the groups of `view`."""

    def __init__(self, view: ClusterView, runner: JobRunner, actions: Actions) -> None:
        self._view = view
        self._runner = runner
        self._actions = actions
        self._starting = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<RunStarts on {self._runner!r}>"

    async def start(
        self,
        job: str,
        group: str,
        parameters: dict[str, object],
        *,
        who: str,
        reason: str,
        key: str | None,
        timeout_s: float | None = None,
    ) -> Run:
        """A new run; for a request that repeats another one under its `Idempotency-Key`, the run of that one.

        Raises UnknownJob, ParametersInvalid, UnknownGroup, KeyReused, JobAlreadyRunning, Unavailable.
        """
        cause = cause_of(who, reason, key, [job, group, timeout_s, sorted(parameters.items())])
        async with self._starting:  # the same request may be on its way twice at this moment
            if (repeated := self._run_under(cause)) is not None:
                return repeated
            submission = submission_for(self._view, job, group, parameters, timeout_s=timeout_s, cause=cause)
            run = await self._runner.start(submission)
            self._actions.report_run(run, cause, "run")
            return run

    def _run_under(self, cause: Cause) -> Run | None:
        """The run that this request has already started. Raises KeyReused if its key started another one."""
        found = next((run for run in self._runner.runs() if cause.key and run.key == cause.key), None)
        if found is not None:
            cause.check_same(found.request)
        return found
