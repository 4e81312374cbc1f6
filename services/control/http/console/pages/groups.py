"""The console's page of groups: which group follows which, and which sessions are current in one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from fastapi import APIRouter, Request, Response

from services.control.core.groups.following import CurrentGroup, CurrentRow
from services.control.core.report.rows import GroupRow
from services.control.http.console.pages.routes import Console, Group
from services.control.live.acts.groups import Groups
from services.control.live.view.cluster_view import UnknownGroup
from shared.model.names import DEFAULT_GROUP

STREAMS: Final = 50
"""So many streams of a followed group are shown with their cuts."""


@dataclass(frozen=True, slots=True)
class GroupLine:
    """A group with how many others it follows, one after the other."""

    row: GroupRow
    depth: int


@dataclass(frozen=True, slots=True)
class CutLine:
    """A stream of a followed group: below which offset its sessions are current."""

    group: str
    stream: int
    below: int | None
    log: int


def in_order_of_following(rows: Iterable[GroupRow]) -> list[GroupLine]:
    """Each group before those that follow it. A group whose followed one is gone stands by itself."""
    waiting = {row.name: row for row in rows}
    following: dict[str | None, list[GroupRow]] = {}
    for row in waiting.values():
        following.setdefault(row.follows if row.follows in waiting else None, []).append(row)
    lines: list[GroupLine] = []
    to_show = [GroupLine(row, 0) for row in reversed(following.get(None, []))]
    while to_show:
        line = to_show.pop()
        lines.append(line)
        to_show += [GroupLine(row, line.depth + 1) for row in reversed(following.get(line.row.name, []))]
    return lines


def cut_lines(current: Sequence[CurrentGroup]) -> list[CutLine]:
    """The cuts of the followed groups, in order of the streams, the nearest group first."""
    lines = [CutLine(one.group, cut.stream, cut.below, cut.log) for one in current for cut in one.cuts or ()]
    return sorted(lines, key=lambda line: line.stream)


def group_page_routes(console: Console, groups: Groups) -> APIRouter:
    """The route of the page."""
    routes = console.pages.router()

    @routes.get("/console/groups")
    async def all_groups(request: Request, group: Group = DEFAULT_GROUP) -> Response:
        scene = console.scene(group)
        current = _current(groups, scene.group)
        cuts = cut_lines(current.current) if current else []
        return console.pages.page(
            request,
            "groups.html",
            **console.common(scene, "overview"),
            lines=in_order_of_following(console.view.served().report.groups),
            current=current,
            aliases=console.view.aliases(),
            cuts=cuts[:STREAMS],
            total=len(cuts),
        )

    return routes


def _current(groups: Groups, group: str) -> CurrentRow | None:
    """What is current in the group itself, not in one that has its name; None before its first member."""
    try:
        return groups.current_of(group)
    except UnknownGroup:
        return None
