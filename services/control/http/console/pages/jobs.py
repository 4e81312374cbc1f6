"""The views Jobs and Reports, a run's page, and the form that starts a run."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final
from urllib.parse import urlencode

import msgspec
from fastapi import APIRouter, Query, Request, Response

from services.control.core.causes import Cause, cause_of
from services.control.core.runs.jobs import JOBS, Job, ParametersInvalid, job_named
from services.control.core.runs.run import Run
from services.control.core.runs.schedules import ScheduleRow
from services.control.http.api.access.caller import Role, caller_of
from services.control.http.api.pages import MAX_REASON
from services.control.http.console.pages.forms import led_to, read_form, refused
from services.control.http.console.pages.routes import Console, Group
from services.control.http.console.shown.actions import curl, run_calls
from services.control.http.console.shown.jobs import every, job_lines, run_line
from services.control.http.console.shown.reports import (
    COLUMNS,
    PLACES,
    Period,
    Place,
    periods_of,
    report_page,
)
from services.control.http.console.shown.verdict import Verdict, verdict_of
from services.control.live.acts.actions import Actions
from services.control.live.runs.scheduler import Scheduler
from services.control.live.runs.starts import RunStarts
from services.control.ports import JobRunner
from shared.errors import BatonError
from shared.model.names import DEFAULT_GROUP

PAGE: Final = 20
"""Runs of a table."""
PARAMETER: Final = "p."
"""Begins the names of a form's fields that are parameters of a job."""
ADMIN_JOBS: Final = frozenset({"maintain"})
"""Jobs that delete files of the lake, and with them the tables' older versions."""


def role_for(job: str) -> Role:
    """The role that may run this job."""
    return "admin" if job in ADMIN_JOBS else "operate"


class JobPages:
    """What the pages need of the runner and the scheduler."""

    def __init__(
        self,
        console: Console,
        runner: JobRunner,
        scheduler: Scheduler,
        actions: Actions,
        starts: RunStarts,
    ) -> None:
        self._console = console
        self._runner = runner
        self._scheduler = scheduler
        self._actions = actions
        self._starts = starts
        self._read = console.scene

    def __repr__(self) -> str:
        return f"<JobPages of {self._console!r}>"

    def runs_of(self, group: str) -> list[Run]:
        """The group's runs, newest first."""
        return [run for run in self._runner.runs() if run.group == group]

    def newest(self, runs: Sequence[Run], job: str) -> tuple[Run, Any] | None:
        """The newest run of the job that has a result, with it."""
        good = (run for run in runs if run.job == job and run.state == "succeeded")
        return next(((run, result) for run in good if (result := self._runner.result_of(run.id))), None)

    def verdict(self, runs: Sequence[Run]) -> Verdict | None:
        """That of the last audit that came to an end."""
        found = self.newest(runs, "audit")
        return verdict_of(*found, self._console.now_ms()) if found else None

    def common(self, group: str, view: str) -> dict[str, Any]:
        """What `base.html` needs; the page hears of runs. Raises UnknownGroup, Unavailable."""
        return self._console.common(self._read(group), view, live="&work=run")

    def jobs(self, request: Request, group: str, offset: int) -> Response:
        """The view Jobs."""
        group = self._console.view.named(group)
        common, now_ms, runs = self.common(group, "jobs"), self._console.now_ms(), self.runs_of(group)
        shown, schedules = runs[offset : offset + PAGE], self._schedules()
        verdict = self.verdict(runs)
        audit = next((run for run in runs if run.job == "audit"), None)
        return self._console.pages.page(
            request,
            "jobs.html",
            **common,
            verdict=verdict,
            later=run_line(audit, now_ms) if audit and (not verdict or audit != verdict.run) else None,
            jobs=job_lines(runs, schedules, group, now_ms, self._runner.result_of),
            may_run={name for name in JOBS if self._console.may(request, role_for(name))},
            schedules=[row for row in schedules if row.group == group],
            every=every,
            runs=[run_line(run, now_ms, self._runner.result_of(run.id)) for run in shown],
            offset=offset,
            total=len(runs),
            page=PAGE,
        )

    def _schedules(self) -> list[ScheduleRow]:
        """The schedules, each with the group that it works for: it may name an alias."""
        named = self._console.view.named
        return [msgspec.structs.replace(row, group=named(row.group)) for row in self._scheduler.rows()]

    def run(self, request: Request, run_id: str) -> Response:
        """A run's page. Raises UnknownRun."""
        run, result = self._runner.run_of(run_id), self._runner.result_of(run_id)
        now_ms = self._console.now_ms()
        is_audit = run.job == "audit" and result
        return self._console.pages.page(
            request,
            "run.html",
            **self.common(run.group, "jobs"),
            line=run_line(run, now_ms, result),
            verdict=verdict_of(run, result, now_ms) if is_audit else None,
            log=self._runner.log_of(run_id, None),
            result=msgspec.json.format(msgspec.json.encode(result)).decode() if result else "",
            most_reason=MAX_REASON,
            may_cancel=not run.has_ended and self._console.may(request, "operate"),
            curl=curl("GET", f"/runs/{run_id}"),
            baton=f"baton runs attach {run_id}",
        )

    async def cancel(self, request: Request, run_id: str) -> Response:
        """Cancels the run, and leads to its page. Raises UnknownRun."""
        fields, had_ended = await read_form(request), self._runner.run_of(run_id).has_ended
        run = await self._runner.cancel(run_id)
        if not had_ended:
            self._actions.report_run(run, cause_in(request, fields), "cancel")
        return led_to(f"/console/runs/{run_id}")

    def ask(self, request: Request, name: str, group: str) -> Response:
        """The form that runs a job; the query may fill it in. Raises UnknownJob."""
        group = self._console.view.named(group)
        given = parameters_in(request.query_params)
        return self._form(request, job_named(name), group, given, [])

    async def start(self, request: Request, name: str) -> Response:
        """Starts a run as the form says, and leads to its page. Raises UnknownJob."""
        job, fields = job_named(name), await read_form(request)
        group, given = self._console.view.named(fields.get("group", DEFAULT_GROUP)), parameters_in(fields)
        who, reason = caller_of(request).name, fields.get("reason", "")[:MAX_REASON]
        try:
            # sent twice, the form still starts one run
            run = await self._starts.start(
                name, group, typed(job, given), who=who, reason=reason, key=fields.get("key")
            )
        except ParametersInvalid as error:
            return self._form(request, job, group, given, error.faults, 422)
        except BatonError as error:
            common, back = self.common(group, "jobs"), f"/console/jobs?{urlencode({'group': group})}"
            return refused(
                self._console.pages, request, error, common, what=f"{name} was not started", back=back
            )
        return led_to(f"/console/runs/{run.id}")

    def reports(self, request: Request, group: str, period: Period, place: Place) -> Response:
        """The view Reports."""
        group = self._console.view.named(group)
        found = self.newest(self.runs_of(group), "reports")
        common = self.common(group, "reports")
        page = self._console.pages.page
        if found is None:
            return page(request, "reports.html", **common, run=None)
        run, result = found
        chosen: Period = period if result.get(f"{period}s") else next(iter(periods_of(result)), period)
        report = result.get("report", "default")
        where = f"\"group\" = '{group}' and report = '{report}' and period = '{chosen}'"
        query = f"select * from reports.periods where {where} order by start desc"
        return page(
            request,
            "reports.html",
            **common,
            run=run,
            result=result,
            report=report_page(result, run.started_at, chosen, place),
            period=chosen,
            place=place,
            places=PLACES,
            columns=COLUMNS,
            whole=f"baton sql {shlex.quote(query)} --limit 10000 -o csv",
            again=urlencode({"job": "reports", "group": group} | prefixed(run.parameters)),
            may_run=self._console.may(request, "operate"),
        )

    def _form(
        self,
        request: Request,
        job: Job,
        group: str,
        given: dict[str, str],
        faults: Sequence[tuple[str, str]],
        status: int = 200,
    ) -> Response:
        return self._console.pages.page(
            request,
            "run_job.html",
            status,
            **self.common(group, "jobs"),
            job=job,
            given=given,
            faults=dict(faults),
            may_run=self._console.may(request, role_for(job.name)),
            most_reason=MAX_REASON,
            key=secrets.token_hex(8),
            calls=run_calls(job.name, group, typed(job, given)),
        )


def cause_in(request: Request, fields: Mapping[str, str]) -> Cause:
    """Who sends the form, and why."""
    return cause_of(caller_of(request).name, fields.get("reason", "")[:MAX_REASON], None, None)


def parameters_in(fields: Any) -> dict[str, str]:
    """The parameters of a job among a form's fields."""
    return {
        name.removeprefix(PARAMETER): value
        for name, value in fields.items()
        if name.startswith(PARAMETER) and value
    }


def prefixed(parameters: dict[str, str | int]) -> dict[str, str]:
    """Parameters as a form's fields."""
    return {f"{PARAMETER}{name}": str(value) for name, value in parameters.items()}


def typed(job: Job, given: dict[str, str]) -> dict[str, Any]:
    """The parameters, as integers where the job expects them; anything else stays text."""
    integers = {one.name for one in job.parameters if one.type == "integer"}
    return {
        name: int(value) if name in integers and value.removeprefix("-").isdecimal() else value
        for name, value in given.items()
    }


def job_pages_routes(console: Console, pages: JobPages) -> APIRouter:
    """The routes of these pages."""
    routes = console.pages.router()

    @routes.get("/console/jobs")
    async def jobs(
        request: Request, group: Group = DEFAULT_GROUP, offset: Annotated[int, Query(ge=0)] = 0
    ) -> Response:
        return pages.jobs(request, group, offset)

    @routes.get("/console/runs/{run_id}")
    async def run(request: Request, run_id: str) -> Response:
        return pages.run(request, run_id)

    @routes.post("/console/runs/{run_id}/cancel")
    async def cancel(request: Request, run_id: str) -> Response:
        return await pages.cancel(request, run_id)

    @routes.get("/console/actions/run")
    async def ask(request: Request, job: str = "", group: Group = DEFAULT_GROUP) -> Response:
        # the choice of a group in the bar names nothing else
        return pages.ask(request, job, group) if job else pages.jobs(request, group, 0)

    @routes.post("/console/jobs/{name}/runs")
    async def start(request: Request, name: str) -> Response:
        return await pages.start(request, name)

    @routes.get("/console/reports")
    async def reports(
        request: Request, group: Group = DEFAULT_GROUP, period: Period = "hour", items: Place = "anywhere"
    ) -> Response:
        return pages.reports(request, group, period, items)

    return routes
