"""`GET /members`, `/producers`, `/groups`, `/plan`: who takes part, from the view's memory."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Depends, Query, Response

from services.control.core.paging import Listing, columns_of, select
from services.control.core.report.rows import GroupRow, MemberRow, PlanRow, ProducerRow
from services.control.http.api.openapi import answers, encoded
from services.control.http.api.pages import (
    INVALID,
    LISTED,
    NOT_FOUND,
    UNAVAILABLE,
    AfterName,
    Group,
    Name,
    NextCursor,
    Paging,
    StaleMs,
)
from services.control.live.view.cluster_view import ClusterView
from shared.model.names import DEFAULT_GROUP


class MemberPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the members, in the order of their ids unless sorted otherwise."""

    members: list[MemberRow]
    next: NextCursor
    stale_ms: StaleMs


class ProducerPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the producers, in the order of their ids unless sorted otherwise."""

    producers: list[ProducerRow]
    next: NextCursor
    stale_ms: StaleMs


class GroupPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the groups, in the order of their names unless sorted otherwise."""

    groups: list[GroupRow]
    next: NextCursor
    stale_ms: StaleMs


ANSWERED = (MemberPage, ProducerPage, GroupPage, PlanRow)
MEMBERS: Listing[MemberRow] = Listing(
    columns=columns_of("id", "group", "state", "since", "address", "lease_ms", "answers", "paused")
    | {
        "streams": lambda row: len(row.streams),
        "fragments_per_s": lambda row: row.rates.fragments_per_s if row.rates else None,
        "sessions_per_s": lambda row: row.rates.sessions_per_s if row.rates else None,
    },
    default="id,group",
)
PRODUCERS: Listing[ProducerRow] = Listing(
    columns=columns_of("id", "address", "pid", "since", "accepted_per_s", "answers"), default="id"
)
GROUPS: Listing[GroupRow] = Listing(
    columns=columns_of("name", "streams", "lag") | {"members": lambda row: len(row.members)}, default="name"
)


def cluster_routes(view: ClusterView) -> APIRouter:
    """The routes over the view."""
    routes = APIRouter(tags=["cluster"], responses=INVALID | UNAVAILABLE)

    _members(routes, view)
    _producers(routes, view)
    _groups(routes, view)
    _plan(routes, view)
    return routes


def _members(routes: APIRouter, view: ClusterView) -> None:
    @routes.get(
        "/members",
        summary="List the members",
        responses=answers(MemberPage) | NOT_FOUND,
        dependencies=LISTED,
    )
    async def members(
        paging: Annotated[Paging, Depends()],
        group: Annotated[
            str | None, Query(max_length=100, description="return only members of this group")
        ] = None,
        after: AfterName = "",
        state: Annotated[list[Name] | None, Query(description="only members in this state")] = None,
        answering: Annotated[bool | None, Query(description="only members that answer, or do not")] = None,
    ) -> Response:
        if group is not None:
            view.check_group(group)
        rows = view.served(with_offsets=False).report.members
        found = select(
            [row for row in rows if row.id > after],
            group=None if group is None else [group],
            state=state,
            answers=None if answering is None else [answering],
        )
        page, cursor = paging.page(MEMBERS, found, (group, after, state, answering))
        return encoded(MemberPage(members=list(page), next=cursor, stale_ms=view.stale_ms()))


def _producers(routes: APIRouter, view: ClusterView) -> None:
    @routes.get(
        "/producers", summary="List the producers", responses=answers(ProducerPage), dependencies=LISTED
    )
    async def producers(
        paging: Annotated[Paging, Depends()],
        after: AfterName = "",
        answering: Annotated[bool | None, Query(description="only producers that answer, or do not")] = None,
    ) -> Response:
        rows = view.served(with_offsets=False).report.producers
        found = select(
            [row for row in rows if row.id > after], answers=None if answering is None else [answering]
        )
        page, cursor = paging.page(PRODUCERS, found, (after, answering))
        return encoded(ProducerPage(producers=list(page), next=cursor, stale_ms=view.stale_ms()))


def _groups(routes: APIRouter, view: ClusterView) -> None:
    @routes.get("/groups", summary="List the groups", responses=answers(GroupPage), dependencies=LISTED)
    async def groups(paging: Annotated[Paging, Depends()], after: AfterName = "") -> Response:
        found = [row for row in view.served().report.groups if row.name > after]
        page, cursor = paging.page(GROUPS, found, (after,))
        return encoded(GroupPage(groups=list(page), next=cursor, stale_ms=view.stale_ms()))


def _plan(routes: APIRouter, view: ClusterView) -> None:
    @routes.get(
        "/plan",
        summary="Show what would move in a group, and why",
        responses=answers(PlanRow) | NOT_FOUND,
    )
    async def plan(group: Group = DEFAULT_GROUP) -> Response:
        return encoded(view.plan(group))
