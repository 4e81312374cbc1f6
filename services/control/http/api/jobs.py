"""`/jobs` and `/runs`: which Spark programs there are, and their executions."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Query, Request, Response

from services.control.core.causes import cause_of
from services.control.core.paging import Listing, columns_of, select
from services.control.core.runs.jobs import JOBS, MAX_TEXT, Job, Parameter, ParametersInvalid, job_named
from services.control.core.runs.run import (
    LogPart,
    Run,
    RunDetail,
    RunState,
    RunSummary,
    detail_of,
    summary_of,
)
from services.control.core.runs.schedules import ScheduleRow
from services.control.http.api.access.caller import caller_of
from services.control.http.api.openapi import Content, answers, encoded, read_body, refuses, takes_json
from services.control.http.api.pages import (
    BAD_BODY,
    GUARDED,
    INVALID,
    LISTED,
    NOT_FOUND,
    UNAVAILABLE,
    AfterName,
    Group,
    IdempotencyKey,
    Name,
    NextCursor,
    Reason,
    ShortPaging,
)
from services.control.live.acts.actions import Actions
from services.control.live.runs.scheduler import Scheduler
from services.control.live.runs.starts import RunStarts
from services.control.ports import JobRunner
from shared.model.names import DEFAULT_GROUP
from shared.service.http import kind_for, problem


class JobList(msgspec.Struct, frozen=True, kw_only=True):
    """All jobs."""

    jobs: list[Job]


class RunPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the runs, newest first unless sorted otherwise."""

    runs: list[RunSummary]
    next: NextCursor


class ScheduleList(msgspec.Struct, frozen=True, kw_only=True):
    """All schedules, in the order of `BATON_SCHEDULES`."""

    schedules: list[ScheduleRow]


ANSWERED = (JobList, RunPage, RunDetail, LogPart, ScheduleList)
RUNS: Listing[Run] = Listing(
    columns=columns_of("id", "job", "group", "state", "who", "started_at", "ended_at"),
    default="-started_at,-id",
)


def parameters_schema() -> Content:
    """The JSON schema of a run's parameters: those of every job, because the path says which job it is."""
    properties = {one.name: schema_for(one) for job in JOBS.values() for one in job.parameters}
    return {"type": ["object", "null"], "properties": properties, "additionalProperties": False}


def schema_for(parameter: Parameter) -> Content:
    """The JSON schema of one parameter."""
    schema: Content = {"type": parameter.type, "description": parameter.description}
    if parameter.default is not None:
        schema["default"] = parameter.default
    if parameter.type == "integer":
        return schema | {"minimum": parameter.low, "maximum": parameter.high}
    schema |= {"minLength": 1, "maxLength": MAX_TEXT}
    return schema | ({"pattern": f"^({parameter.pattern})$"} if parameter.pattern else {})


def jobs_routes(starts: RunStarts) -> APIRouter:
    """The routes that list and start jobs."""
    routes = APIRouter(tags=["jobs"])

    @routes.get("/jobs", summary="List the jobs and their parameters", responses=answers(JobList))
    async def jobs() -> Response:
        return encoded(JobList(jobs=list(JOBS.values())))

    @routes.post(
        "/jobs/{name}/runs",
        status_code=202,
        summary="Run a job",
        openapi_extra=takes_json(parameters_schema(), "the job's parameters", required=False),
        responses=answers(RunDetail, 202, "The run has started; `Location` names it")
        | BAD_BODY
        | GUARDED
        | INVALID
        | NOT_FOUND
        | UNAVAILABLE
        | refuses(409, "`run` of this job is still under way in this group"),
    )
    async def start(
        request: Request,
        name: str,
        group: Group = DEFAULT_GROUP,
        timeout_s: Annotated[
            float | None,
            Query(gt=0, allow_inf_nan=False, description="a shorter limit than that of all runs"),
        ] = None,
        reason: Reason = "",
        idempotency_key: IdempotencyKey = None,
    ) -> Response:
        job_named(name)
        parameters = await read_body(request, dict[str, Any] | None) or {}
        who = caller_of(request).name
        try:
            run = await starts.start(
                name, group, parameters, who=who, reason=reason, key=idempotency_key, timeout_s=timeout_s
            )
        except ParametersInvalid as error:
            return _refusal(error)
        return encoded(detail_of(run), 202, location=f"/runs/{run.id}")

    return routes


def _refusal(error: ParametersInvalid) -> Response:
    faults = [{"in": parameter, "detail": fault} for parameter, fault in error.faults]
    return problem(422, kind_for(error), error.detail, errors=faults)


def runs_routes(runner: JobRunner, actions: Actions) -> APIRouter:
    """The routes that show and cancel runs."""
    routes = APIRouter(tags=["jobs"], responses=INVALID | NOT_FOUND)
    _list_runs(routes, runner)
    _show_run(routes, runner)
    _cancel_run(routes, runner, actions)
    return routes


def _list_runs(routes: APIRouter, runner: JobRunner) -> None:
    @routes.get(
        "/runs", summary="List the runs, newest first", responses=answers(RunPage), dependencies=LISTED
    )
    async def runs(
        paging: Annotated[ShortPaging, Depends()],
        after: AfterName = "",
        job: Annotated[list[Name] | None, Query(description="only runs of this job")] = None,
        group: Annotated[list[Name] | None, Query(description="only runs in this group")] = None,
        state: Annotated[list[RunState] | None, Query(description="only runs in this state")] = None,
    ) -> Response:
        every = list(runner.runs())
        if after:
            every = every[every.index(runner.run_of(after)) + 1 :]
        found = select(every, job=job, group=group, state=state)
        page, cursor = paging.page(RUNS, found, (after, job, group, state))
        return encoded(RunPage(runs=[summary_of(run) for run in page], next=cursor))


def _show_run(routes: APIRouter, runner: JobRunner) -> None:
    @routes.get(
        "/runs/{run_id}",
        summary="Show a run with its progress or result",
        responses=answers(RunDetail),
    )
    async def run(run_id: str) -> Response:
        return _answer_with(runner, run_id)

    @routes.get(
        "/runs/{run_id}/log",
        summary="Read a run's log",
        responses=answers(LogPart),
    )
    async def log(
        run_id: str,
        after: Annotated[
            int | None, Query(ge=0, description="byte of the log to read from; without it: its end")
        ] = None,
    ) -> Response:
        return encoded(runner.log_of(run_id, after))


def _cancel_run(routes: APIRouter, runner: JobRunner, actions: Actions) -> None:
    @routes.delete(
        "/runs/{run_id}",
        summary="Cancel a run",
        responses=answers(RunDetail, description="The run has ended; no process of it is left") | GUARDED,
    )
    async def cancel(request: Request, run_id: str, reason: Reason = "") -> Response:
        had_ended = runner.run_of(run_id).has_ended
        found = await runner.cancel(run_id)
        if not had_ended:
            actions.report_run(found, cause_of(caller_of(request).name, reason, None, None), "cancel")
        return _answer_with(runner, run_id)


def _answer_with(runner: JobRunner, run_id: str) -> Response:
    return encoded(detail_of(runner.run_of(run_id), runner.result_of(run_id)))


def schedules_routes(scheduler: Scheduler) -> APIRouter:
    """The route that shows the schedules."""
    routes = APIRouter(tags=["jobs"])

    @routes.get("/schedules", summary="List the schedules of jobs", responses=answers(ScheduleList))
    async def schedules() -> Response:
        return encoded(ScheduleList(schedules=scheduler.rows()))

    return routes
