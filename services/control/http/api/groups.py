"""`/groups/{group}`: which sessions are current in a group, and its end."""

from __future__ import annotations

import msgspec
from fastapi import APIRouter, Request, Response

from services.control.core.causes import cause_of
from services.control.core.groups.following import CurrentRow
from services.control.http.api.access.caller import caller_of
from services.control.http.api.openapi import answers, encoded, refuses
from services.control.http.api.pages import GUARDED, INVALID, NOT_FOUND, UNAVAILABLE, Reason
from services.control.live.acts.groups import Groups


class DeletedGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A group that is no more. Its finished sessions stay in Kafka until their retention ends."""

    group: str


ANSWERED = (CurrentRow, DeletedGroup)


def groups_routes(groups: Groups) -> APIRouter:
    """The routes over one group."""
    routes = APIRouter(tags=["cluster"], responses=INVALID | NOT_FOUND | UNAVAILABLE)

    @routes.get(
        "/groups/{group}/current",
        summary="Show which sessions are current in a group",
        responses=answers(CurrentRow),
    )
    async def current(group: str) -> Response:
        return encoded(groups.current(group))

    @routes.delete(
        "/groups/{group}",
        summary="Delete a group",
        responses=answers(DeletedGroup)
        | GUARDED
        | refuses(409, "It has members, an alias, or a group that follows it"),
    )
    async def delete(request: Request, group: str, reason: Reason = "") -> Response:
        await groups.delete(group, cause_of(caller_of(request).name, reason, None, None))
        return encoded(DeletedGroup(group=group))

    return routes
