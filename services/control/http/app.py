"""Control's HTTP face: `create_app` makes it from the view, feed, operations, runner and lake.

Every list is served from memory, except the lake's tables, which are read from their files, and look-ups,
which ask the owner of a stream, Kafka and the lake. Only `POST` and `DELETE` act. The guard stands in front
and refuses what pages of other sites send. Behind it, the gate refuses callers that lack the role for their
request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import prometheus_client
from fastapi import Depends, FastAPI
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from services.control.core.lake.freshness import FreshnessRow
from services.control.http.api import (
    cluster,
    events,
    groups,
    jobs,
    login,
    streams,
    tables,
)
from services.control.http.api import history as history_api
from services.control.http.api import (
    look_ups as lookup,
)
from services.control.http.api import operations as operations_api
from services.control.http.api import problems as problems_api
from services.control.http.api import queues as queues_api
from services.control.http.api.access.access import Access
from services.control.http.api.access.gate import Gate
from services.control.http.api.bodies import check_query
from services.control.http.api.forms import is_own_form
from services.control.http.api.openapi import complete_document
from services.control.http.api.pages import BAD_QUERY, MISDIRECTED, REFUSED
from services.control.http.console.assets import Assets
from services.control.http.console.live.snapshots import LiveHub
from services.control.http.console.pages.actions import ActionPages, action_pages_routes
from services.control.http.console.pages.groups import group_page_routes
from services.control.http.console.pages.jobs import JobPages, job_pages_routes
from services.control.http.console.pages.look_up import look_up_routes
from services.control.http.console.pages.overview import overview_routes
from services.control.http.console.pages.queues import QueuePages, queue_pages_routes
from services.control.http.console.pages.routes import Console, console_routes
from services.control.http.console.rendering import Pages
from services.control.http.prefix import Prefix
from services.control.live.acts.actions import Actions
from services.control.live.acts.groups import Groups
from services.control.live.acts.operations import Operations
from services.control.live.feed.feed import EventFeed
from services.control.live.look_ups import LookUp
from services.control.live.queues.history import QueueHours
from services.control.live.queues.queues import Queues
from services.control.live.runs.scheduler import Scheduler
from services.control.live.runs.starts import RunStarts
from services.control.live.view.cluster_view import ClusterView
from services.control.live.view.history import History
from services.control.live.view.problems import Problems
from services.control.ports import JobRunner, TableSource
from shared.service.api_docs import NO_DOCS, install_docs
from shared.service.guard import Guard, Guarded
from shared.service.http import HeadAnswers, install_health, install_problems

RESOURCES: Final = (
    *(streams, cluster, events, operations_api, groups, jobs, tables, lookup, login, history_api),
    *(problems_api, queues_api),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the face shows and passes on."""

    view: ClusterView
    feed: EventFeed
    hub: LiveHub
    operations: Operations
    groups: Groups
    actions: Actions
    runner: JobRunner
    lake: TableSource
    look_up: LookUp
    freshness: Callable[[], list[FreshnessRow]]
    history: History
    problems: Problems
    queues: Queues
    queue_hours: QueueHours
    scheduler: Scheduler
    registry: prometheus_client.CollectorRegistry


def create_app(
    parts: Parts, *, hosts: Iterable[str], access: Access, root_path: str = "", proxies: Sequence[str] = ()
) -> FastAPI:
    """Control as an ASGI app under loopback names, IP addresses and `hosts`, for whom `access` lets in.

    `root_path`: the path at which a proxy offers it, "" for none. `proxies`: whose forwarded addresses and
    schemes are believed.
    """
    app = FastAPI(
        title="Baton control",
        description="Who owns which stream, how far it is, and the operations and jobs on it.",
        version="1",
        responses=BAD_QUERY | MISDIRECTED | REFUSED,
        dependencies=[Depends(check_query)],
        servers=[{"url": root_path}] if root_path else None,
        **NO_DOCS,
    )
    app.add_middleware(HeadAnswers)
    app.add_middleware(Gate, access=access)
    app.add_middleware(Guarded, guard=Guard(hosts, is_exempt=is_own_form))
    app.add_middleware(Prefix, root_path=root_path)
    if proxies:
        app.add_middleware(ProxyHeadersMiddleware, trusted_hosts=list(proxies))
    # the last one stands in front
    install_problems(app)
    install_docs(app)

    def complaints() -> list[str]:
        return [*parts.view.complaints(), *parts.operations.complaints(), *access.complaints()]

    install_health(app, complaints, parts.registry, remarks=access.remarks)
    assets = Assets()
    style, icon = (root_path + assets.url(name) for name in ("console.css", "icon.svg"))
    look = login.Look(style, icon, root_path)
    app.include_router(login.access_routes(access, look))
    app.include_router(streams.streams_routes(parts.view))
    app.include_router(cluster.cluster_routes(parts.view))
    app.include_router(events.events_routes(parts.feed, parts.view.check_group))
    app.include_router(operations_api.operations_routes(parts.operations, parts.groups))
    app.include_router(groups.groups_routes(parts.groups))
    starts = RunStarts(parts.view, parts.runner, parts.actions)
    app.include_router(jobs.jobs_routes(starts))
    app.include_router(jobs.runs_routes(parts.runner, parts.actions))
    app.include_router(jobs.schedules_routes(parts.scheduler))
    app.include_router(tables.tables_routes(parts.lake, parts.freshness))
    app.include_router(lookup.lookup_routes(parts.look_up))
    app.include_router(history_api.history_routes(parts.history))
    app.include_router(problems_api.problems_routes(parts.problems))
    app.include_router(queues_api.queues_routes(parts.queues, parts.queue_hours))
    pages = Pages(assets, parts.view.named, root_path=root_path, is_open=access.is_open)
    _install_console(app, parts, pages, starts, is_read_only=access.is_read_only)
    complete_document(
        app,
        answered=[struct for resource in RESOURCES for struct in resource.ANSWERED],
        taken=[operations_api.OperationRequest, queues_api.QueueActRequest],
    )
    return app


def _install_console(
    app: FastAPI, parts: Parts, pages: Pages, starts: RunStarts, *, is_read_only: bool
) -> None:
    console = Console(
        parts.view,
        parts.feed,
        parts.hub,
        parts.history,
        parts.problems,
        parts.look_up,
        pages,
        queues=parts.queues.known,
        is_read_only=is_read_only,
    )
    app.include_router(console_routes(console, pages.assets))
    app.include_router(overview_routes(console, parts.runner))
    app.include_router(look_up_routes(console))
    app.include_router(group_page_routes(console, parts.groups))
    job_pages = JobPages(console, parts.runner, parts.scheduler, parts.actions, starts)
    app.include_router(job_pages_routes(console, job_pages))
    app.include_router(queue_pages_routes(console, QueuePages(console, parts.queues, parts.queue_hours)))
    app.include_router(action_pages_routes(console, ActionPages(console, parts.operations)))
