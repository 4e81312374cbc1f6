"""Control's HTTP face: `create_app` makes it from the view, the feed of events and the runner.

Every list comes from the view's memory; only the routes under /operations, /jobs and /runs do something.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import prometheus_client
from fastapi import APIRouter, Body, FastAPI, Path, Query, Request, Response
from fastapi.responses import JSONResponse

from services.control.api import models
from services.control.api.events import events_routes
from services.control.api.operations import operations_routes
from services.control.core.jobs import JOBS, ParametersInvalid, job_named, parse_parameters
from services.control.core.runs import public
from services.control.live.cluster_view import ClusterView, UnknownGroup
from services.control.live.feed import EventFeed
from services.control.live.operations import Operations
from services.control.ports import JobRunner
from shared.model.names import DEFAULT_GROUP
from shared.service.http import PROBLEM, install_health, install_problems, kind_for, problem

JSON = "application/json"
MAX_LIMIT = 5000

Group = Annotated[str, Query(description="the group to look at", max_length=100)]
Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT, description="rows at most")]
AfterName = Annotated[str, Query(max_length=300, description="only rows after the one so named")]
AfterNumber = Annotated[int, Query(ge=-1, description="only streams above this number")]

_UNAVAILABLE: dict[int | str, dict[str, Any]] = {
    503: {"description": "ZooKeeper or Kafka has not been read yet", "content": {PROBLEM: {}}}
}
_MISSING: dict[int | str, dict[str, Any]] = {404: {"description": "There is none", "content": {PROBLEM: {}}}}


def create_app(
    *,
    view: ClusterView,
    feed: EventFeed,
    operations: Operations,
    runner: JobRunner,
    registry: prometheus_client.CollectorRegistry,
) -> FastAPI:
    """Control as an ASGI app."""
    app = FastAPI(
        title="Baton control", description="Who owns what, how far it is, and the jobs on it.", version="1"
    )
    install_problems(app)
    install_health(app, view.complaints, registry)
    app.add_exception_handler(ParametersInvalid, _parameters_problem)
    app.include_router(_streams_routes(view))
    app.include_router(_cluster_routes(view))
    app.include_router(events_routes(feed))
    app.include_router(operations_routes(operations))
    app.include_router(_jobs_routes(view, runner))
    return app


def _streams_routes(view: ClusterView) -> APIRouter:
    routes = APIRouter(tags=["streams"], responses=_UNAVAILABLE | _MISSING)

    @routes.get("/streams", response_model=models.Streams, summary="A group's streams")
    async def streams(
        group: Group = DEFAULT_GROUP, limit: Limit = MAX_LIMIT, after: AfterNumber = -1
    ) -> Response:
        found = view.streams(group)
        return _list(view, "streams", found.rows[after + 1 : after + 1 + limit], b',"totals":' + found.totals)

    @routes.get("/streams/{stream}", response_model=models.StreamDetail, summary="One stream of a group")
    async def stream(stream: Annotated[int, Path(ge=0)], group: Group = DEFAULT_GROUP) -> Response:
        return Response(msgspec.json.encode(view.stream(group, stream)), media_type=JSON)

    return routes


def _cluster_routes(view: ClusterView) -> APIRouter:
    routes = APIRouter(tags=["cluster"], responses=_UNAVAILABLE)

    @routes.get("/members", response_model=models.Members, summary="The members, of one group or of all")
    async def members(
        group: Annotated[str | None, Query(max_length=100)] = None,
        limit: Limit = MAX_LIMIT,
        after: AfterName = "",
    ) -> Response:
        served = view.served(with_offsets=False)
        rows = [
            encoded
            for row, encoded in zip(served.report.members, served.members, strict=True)
            if row.id > after and group in (None, row.group)
        ]
        return _list(view, "members", rows[:limit])

    @routes.get("/producers", response_model=models.Producers, summary="The producers")
    async def producers(limit: Limit = MAX_LIMIT, after: AfterName = "") -> Response:
        served = view.served(with_offsets=False)
        pairs = zip(served.report.producers, served.producers, strict=True)
        return _list(view, "producers", [encoded for row, encoded in pairs if row.id > after][:limit])

    @routes.get("/groups", response_model=models.Groups, summary="The groups")
    async def groups(limit: Limit = MAX_LIMIT, after: AfterName = "") -> Response:
        served = view.served()
        pairs = zip(served.report.groups, served.groups, strict=True)
        return _list(view, "groups", [encoded for row, encoded in pairs if row.name > after][:limit])

    @routes.get("/plan", response_model=models.Plan, summary="What would move, and why", responses=_MISSING)
    async def plan(group: Group = DEFAULT_GROUP) -> Response:
        plans = view.served(with_offsets=False).plans
        if group not in plans:
            raise UnknownGroup(f"there is no group {group!r}")
        return Response(plans[group], media_type=JSON)

    return routes


def _jobs_routes(view: ClusterView, runner: JobRunner) -> APIRouter:
    routes = APIRouter(tags=["jobs"], responses=_MISSING)

    @routes.get("/jobs", response_model=models.Jobs, summary="The jobs and their parameters")
    async def jobs() -> Response:
        return JSONResponse({"jobs": [dataclasses.asdict(job) for job in JOBS.values()]})

    @routes.post(
        "/jobs/{name}/runs",
        status_code=202,
        response_model=models.Run,
        summary="Run a job",
        responses=_UNAVAILABLE
        | {
            409: {
                "description": "A run of this job in this group has not ended yet",
                "content": {PROBLEM: {}},
            }
        },
    )
    async def start(
        name: str,
        parameters: Annotated[dict[str, Any] | None, Body(description="the job's parameters")] = None,
        group: Group = DEFAULT_GROUP,
        timeout_s: Annotated[
            float | None, Query(gt=0, allow_inf_nan=False, description="shorter than the limit of all runs")
        ] = None,
    ) -> Response:
        job = job_named(name)
        values = parse_parameters(job, parameters or {})
        cluster = view.served(with_offsets=False).observed.cluster
        found = cluster.groups.get(group)
        if found is None or found.settings is None:
            raise UnknownGroup(f"there is no group {group!r}: no member of it has ever started")
        run = await runner.start(
            job,
            group=group,
            parameters=values,
            settings=found.settings,
            streams=cluster.count,
            timeout_s=timeout_s,
        )
        return JSONResponse(public(run), 202, headers={"Location": f"/runs/{run.id}"})

    @routes.get("/runs", response_model=models.Runs, summary="The runs, the newest first")
    async def runs(limit: Limit = 100, after: AfterName = "") -> Response:
        found = list(runner.runs())
        if after:
            found = found[found.index(runner.run_of(after)) + 1 :]
        return JSONResponse({"runs": [_without_result(public(run)) for run in found[:limit]]})

    @routes.get("/runs/{run_id}", response_model=models.Run, summary="One run, its progress or result")
    async def run(run_id: str) -> Response:
        return _run_response(runner, run_id)

    @routes.delete("/runs/{run_id}", response_model=models.Run, summary="Cancel a run")
    async def cancel(run_id: str) -> Response:
        await runner.cancel(run_id)
        return _run_response(runner, run_id)

    return routes


def _list(view: ClusterView, name: str, rows: Sequence[bytes], more: bytes = b"") -> Response:
    body = b'{"%b":[%b]%b,"stale_ms":%d}' % (name.encode(), b",".join(rows), more, view.stale_ms())
    return Response(body, media_type=JSON)


def _run_response(runner: JobRunner, run_id: str) -> Response:
    return Response(
        msgspec.json.encode(public(runner.run_of(run_id), runner.result_of(run_id))), media_type=JSON
    )


def _without_result(run: dict[str, Any]) -> dict[str, Any]:
    del run["result"]
    return run


async def _parameters_problem(_: Request, error: Exception) -> Response:
    assert isinstance(error, ParametersInvalid)
    errors = [{"in": name, "detail": fault} for name, fault in error.faults]
    return problem(422, kind_for(error), error.detail, errors=errors)
