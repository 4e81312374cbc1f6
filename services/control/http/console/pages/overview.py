"""The first page: what is wrong, the last hour, who owns what, what has moved, and the newest runs."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from services.control.core.events.movements import by_cause, counts_of, handed_over
from services.control.http.console.pages.routes import LATEST, Console, Group
from services.control.http.console.shown.jobs import job_lines
from services.control.http.console.shown.overview import audit_word, group_tiles, moved_words
from services.control.http.console.shown.ownership import ownership_map
from services.control.live.view.cluster_view import ClusterView
from services.control.ports import JobRunner
from shared.model.names import DEFAULT_GROUP


def overview_routes(console: Console, runner: JobRunner) -> APIRouter:
    """The route of the page."""
    routes = console.pages.router()

    @routes.get("/")
    async def overview(request: Request, group: Group = DEFAULT_GROUP) -> Response:
        scene, found = console.scene(group), console.problems.of_group(group)
        common, moves = console.common(scene, "overview", live="&work=run"), console.movements(group)
        runs = [run for run in runner.runs() if run.group == group]
        return console.pages.page(
            request,
            "overview.html",
            **common,
            audit=audit_word(found.last_audit, scene.now_ms),
            audit_run=found.last_audit.run if found.last_audit else "",
            members=scene.members,
            delivery=_delivery(console.view, group),
            problems=scene.problems,
            tiles=group_tiles(console.history.of_group(group), common["facts"]),
            map=ownership_map(scene, "lag"),
            moves=handed_over(moves, scene.now_ms),
            moved_words=moved_words(counts_of(moves)),
            causes=by_cause(moves)[:LATEST],
            jobs=job_lines(runs, (), group, scene.now_ms, runner.result_of),
        )

    return routes


def _delivery(view: ClusterView, group: str) -> str:
    settings = view.served().observed.cluster.groups.get(group)
    kind = settings.settings.delivery if settings and settings.settings else "exactly_once"
    return kind.replace("_", " ")
