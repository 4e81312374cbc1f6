"""`GET /members`, `/producers`, `/groups`, `/plan`: who takes part, from the view's memory."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from services.control.api.openapi import JSON, answers
from services.control.api.pages import (
    INVALID,
    MAX_LIMIT,
    NOT_FOUND,
    UNAVAILABLE,
    AfterName,
    Group,
    Limit,
    Page,
    page,
)
from services.control.core.rows import GroupRow, MemberRow, PlanRow, ProducerRow
from services.control.live.cluster_view import ClusterView
from shared.model.names import DEFAULT_GROUP


class MemberPage(Page, frozen=True, kw_only=True):
    """A page of the members, sorted by id."""

    members: list[MemberRow]


class ProducerPage(Page, frozen=True, kw_only=True):
    """A page of the producers, sorted by id."""

    producers: list[ProducerRow]


class GroupPage(Page, frozen=True, kw_only=True):
    """A page of the groups, sorted by name."""

    groups: list[GroupRow]


ANSWERED = (MemberPage, ProducerPage, GroupPage, PlanRow)


def cluster_routes(view: ClusterView) -> APIRouter:
    """The routes over the view."""
    routes = APIRouter(tags=["cluster"], responses=INVALID | UNAVAILABLE)

    @routes.get(
        "/members", summary="List the members", responses=answers(MemberPage, "A page of the members")
    )
    async def members(
        group: Annotated[
            str | None, Query(max_length=100, description="return only members of this group")
        ] = None,
        limit: Limit = MAX_LIMIT,
        after: AfterName = "",
    ) -> Response:
        found = view.served(with_offsets=False).members
        rows = [encoded for row, encoded in found if row.id > after and group in (None, row.group)]
        return page("members", rows[:limit], view.stale_ms())

    @routes.get(
        "/producers", summary="List the producers", responses=answers(ProducerPage, "A page of the producers")
    )
    async def producers(limit: Limit = MAX_LIMIT, after: AfterName = "") -> Response:
        found = view.served(with_offsets=False).producers
        rows = [encoded for row, encoded in found if row.id > after]
        return page("producers", rows[:limit], view.stale_ms())

    @routes.get("/groups", summary="List the groups", responses=answers(GroupPage, "A page of the groups"))
    async def groups(limit: Limit = MAX_LIMIT, after: AfterName = "") -> Response:
        rows = [encoded for row, encoded in view.served().groups if row.name > after]
        return page("groups", rows[:limit], view.stale_ms())

    @routes.get(
        "/plan",
        summary="Show what would move in a group, and why",
        responses=answers(PlanRow, "The plan of one of the group's members") | NOT_FOUND,
    )
    async def plan(group: Group = DEFAULT_GROUP) -> Response:
        return Response(view.plan(group), media_type=JSON)

    return routes
