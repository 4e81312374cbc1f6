"""The console's pages: what each asks of the view and the feed, and which template draws it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response

from services.control.core.events.movements import Kind as MoveKind
from services.control.core.events.movements import (
    Movement,
    by_cause,
    chosen,
    counts_of,
    handed_over,
    members_of,
    older_than,
)
from services.control.core.queues import QueueRow
from services.control.core.report.rows import StreamRow
from services.control.http.api.access.caller import Role, caller_of
from services.control.http.api.events import EventStream, last_seen
from services.control.http.console.assets import Assets, assets_routes
from services.control.http.console.drawing.beads import Colour, legend
from services.control.http.console.drawing.pauses import pause_chart, pause_width
from services.control.http.console.live.snapshots import LiveHub, shape_of
from services.control.http.console.live.work import Kind
from services.control.http.console.rendering import Pages
from services.control.http.console.shown.overview import stream_tiles
from services.control.http.console.shown.ownership import ownership_map
from services.control.http.console.shown.scene import Scene, facts, stream_cells, worst_first
from services.control.http.console.shown.stream import stream_page
from services.control.http.console.words import clock
from services.control.live.feed.feed import EventFeed
from services.control.live.look_ups import LookUp
from services.control.live.view.cluster_view import ClusterView
from services.control.live.view.history import History
from services.control.live.view.problems import Problems
from shared.model.names import DEFAULT_GROUP

PAGE = 50
"""Streams of a table, and causes of the time line."""
LATEST: Final = 6
"""Causes that other pages than the time line show."""
SINCE_MS = {"1 h": 3_600_000, "6 h": 6 * 3_600_000, "1 day": 86_400_000, "all": None}

Group = Annotated[str, Query(max_length=100)]


def wall_ms() -> int:
    """The time, ms UTC."""
    return time.time_ns() // 1_000_000


class Console:
    """What all pages need. `now_ms` is the wall clock; `is_read_only`: nobody may act."""

    def __init__(
        self,
        view: ClusterView,
        feed: EventFeed,
        hub: LiveHub,
        history: History,
        problems: Problems,
        look_up: LookUp,
        pages: Pages,
        *,
        queues: Callable[[], Sequence[QueueRow]] = tuple,
        is_read_only: bool = False,
        now_ms: Callable[[], int] = wall_ms,
    ) -> None:
        self.is_read_only = is_read_only
        self.view = view
        self.feed = feed
        self.hub = hub
        self.history = history
        self.problems = problems
        self.look_up = look_up
        self.pages = pages
        self.now_ms = now_ms
        self.scene = scene_of(view, problems, now_ms, queues=queues)

    def __repr__(self) -> str:
        return f"<Console of {self.view!r}>"

    def may(self, request: Request, needed: Role) -> bool:
        """Whether the caller may do what needs this role."""
        return not self.is_read_only and caller_of(request).may(needed)

    def movements(self, group: str, stream: int | None = None) -> list[Movement]:
        """The movements that the feed remembers, newest first."""
        return self.feed.movements(group, stream)

    def common(
        self, scene: Scene, view: str, *, live: str = "", streams: list[int] | None = None
    ) -> dict[str, Any]:
        """What `base.html` needs. `streams`: those that the page's tables show."""
        rows, recent = ",".join(map(str, streams or ())), self.feed.recent_events
        return {
            "view": view,
            "group": scene.group,
            "groups": sorted({row.name for row in self.view.served().report.groups} | {scene.group}),
            "stale_ms": scene.stale_ms,
            "stale_after_ms": self.hub.stale_after_ms,
            "now_ms": scene.now_ms,
            "facts": facts(scene),
            # a page hears of everything that has happened since it was drawn
            "live_url": f"/live?group={scene.group}&rows={rows}{live}&after={recent.next_id - 1}",
            "shape": shape_of(scene),
            "is_read_only": self.is_read_only,
        }


def scene_of(
    view: ClusterView,
    problems: Problems,
    now_ms: Callable[[], int] = wall_ms,
    *,
    queues: Callable[[], Sequence[QueueRow]] = tuple,
) -> Callable[[str], Scene]:
    """Reads the scene of a group. Reading raises UnknownGroup, Unavailable."""

    def scene(group: str) -> Scene:
        plan = view.plan(group)
        report = view.served().report
        return Scene(
            group=group,
            rows=report.streams[group],
            members=[row for row in report.members if row.group == group],
            plan=plan,
            now_ms=now_ms(),
            stale_ms=view.stale_ms(),
            problems=problems.of_group(group).problems,
            queues=queues(),
        )

    return scene


def console_routes(console: Console, assets: Assets) -> APIRouter:
    """The routes of all pages and of their live messages."""
    routes = console.pages.router()
    routes.include_router(assets_routes(assets))
    _ownership(routes, console)
    _stream(routes, console)
    _movements(routes, console)
    _live(routes, console)
    return routes


def _ownership(routes: APIRouter, console: Console) -> None:
    @routes.get("/console/ownership")
    async def ownership(
        request: Request,
        group: Group = DEFAULT_GROUP,
        colour: Colour = "lag",
        by: Literal["members", "streams"] = "members",
        find: Annotated[str, Query(max_length=300)] = "",
        offset: Annotated[int, Query(ge=0)] = 0,
    ) -> Response:
        scene = console.scene(group)
        # a group that no member has joined yet is in no znode
        joined = console.view.served().observed.cluster.groups.get(group)
        drawn = ownership_map(scene, colour)
        found = [row for row in worst_first(scene.rows) if not find or find in (str(row.stream), row.owner)]
        shown = found[offset : offset + PAGE]
        return console.pages.page(
            request,
            "ownership.html",
            **console.common(
                scene, "ownership", live=f"&colour={colour}", streams=[row.stream for row in shown]
            ),
            map=drawn,
            by=by,
            legend=legend(drawn.beads, drawn.scale),
            may_act=console.may(request, "operate"),
            pause=joined.view.pause if joined else None,
            find=find,
            rows=shown,
            cells={row.stream: _cells(row, scene.now_ms) for row in shown},
            again=request.url.query,
            total=len(found),
            offset=offset,
            page=PAGE,
            more=offset + PAGE < len(found),
            causes=by_cause(console.movements(group))[:LATEST],
        )


def _stream(routes: APIRouter, console: Console) -> None:
    @routes.get("/console/streams/{stream}")
    async def stream(request: Request, stream: int, group: Group = DEFAULT_GROUP) -> Response:
        scene, row = console.scene(group), console.view.stream(group, stream)
        return console.pages.page(
            request,
            "stream.html",
            **console.common(scene, "ownership", streams=[stream]),
            **stream_page(row, scene.now_ms),
            tiles=stream_tiles(console.history.of_stream(group, stream)),
            moves=handed_over(console.movements(group, stream), scene.now_ms),
            held=await console.look_up.open(group, stream),
            streams=len(scene.rows),
            may_act=console.may(request, "operate"),
        )


def _movements(routes: APIRouter, console: Console) -> None:
    @routes.get("/console/movements")
    async def moves(
        request: Request,
        group: Group = DEFAULT_GROUP,
        since: str = "6 h",
        stream: str = "",
        member: Annotated[str, Query(max_length=300)] = "",
        kind: MoveKind = "",
        before: Annotated[int | None, Query(ge=0)] = None,
    ) -> Response:
        scene = console.scene(group)
        number = int(stream) if stream.isdecimal() else None
        span_ms = SINCE_MS.get(since)
        since_ms = None if span_ms is None else scene.now_ms - span_ms
        every = console.movements(group)
        found = chosen(every, since_ms=since_ms, stream=number, member=member, kind=kind)
        older = by_cause(older_than(found, before))
        causes, counts = older[:PAGE], counts_of(found)
        return console.pages.page(
            request,
            "movements.html",
            **console.common(scene, "movements"),
            since=since,
            stream=number,
            member=member,
            kind=kind,
            members=members_of(every),
            counts=counts,
            chart=pause_chart(found, counts, scene.now_ms, span_ms),
            causes=causes,
            bars={move.id: pause_width(move.pause_ms) for cause in causes for move in cause.moves},
            shown=sum(len(cause.moves) for cause in causes),
            before=before,
            last=causes[-1].moves[-1].id if len(older) > PAGE else None,
            query=urlencode(
                {"group": group, "since": since, "stream": stream, "member": member, "kind": kind}
            ),
            total=len(found),
        )


def _live(routes: APIRouter, console: Console) -> None:
    @routes.get("/live")
    async def live(
        request: Request,
        group: Group = DEFAULT_GROUP,
        colour: Colour = "lag",
        rows: Annotated[str, Query(max_length=1000, pattern=r"^(\d+(,\d+)*)?$")] = "",
        work: Kind | None = None,
        after: Annotated[int | None, Query(ge=-1)] = None,
    ) -> Response:
        seen = last_seen(request.headers.get("last-event-id", ""), after)
        streams = [int(number) for number in rows.split(",") if number]
        chunks = console.hub.follow(group, colour, streams, seen, caller_of(request).name, work)
        return EventStream(request, chunks)


def _cells(row: StreamRow, now_ms: int) -> tuple[str, ...]:
    handover = row.last_handover
    return stream_cells(row, {row.stream: clock(handover.at, now_ms)} if handover else None)
