"""`/operations`: an operator moves streams, drains a member, pauses a group, or takes that back.

`kind` selects the struct of a request. The core works on the common form `Wish`; a rewind has its own.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Query, Request, Response
from msgspec import Meta

from services.control.core.causes import cause_of
from services.control.core.groups.rewinds import RewindForecast, RewindWish, To
from services.control.core.operations.forecasts import Forecast
from services.control.core.operations.operation import Operation, OperationState
from services.control.core.operations.progress import OperationDetail
from services.control.core.operations.wishes import Kind, Wish
from services.control.core.paging import Listing, columns_of, select
from services.control.http.api.access.caller import caller_of
from services.control.http.api.openapi import (
    JSON,
    Responses,
    answers,
    encoded,
    read_body,
    refuses,
    schema_of,
    takes,
)
from services.control.http.api.pages import (
    BAD_BODY,
    GUARDED,
    INVALID,
    LISTED,
    MAX_REASON,
    NOT_FOUND,
    IdempotencyKey,
    Name,
    NextCursor,
    Reason,
    ShortPaging,
)
from services.control.live.acts.groups import Groups
from services.control.live.acts.operations import Operations
from shared.model.names import DEFAULT_GROUP

UNANSWERED = refuses(503, "ZooKeeper or the member does not answer")

MemberName = Annotated[str, Meta(min_length=1, max_length=300)]


class _Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    group: Annotated[str, Meta(max_length=100, description="the group whose members carry it out")] = (
        DEFAULT_GROUP
    )
    dry_run: Annotated[bool, Meta(description="only answer what would move, and what that costs")] = False
    reason: Annotated[
        str, Meta(max_length=MAX_REASON, description="why, in your words; an event keeps it")
    ] = ""
    if_plan: Annotated[
        Annotated[str, Meta(max_length=100)] | None,
        Meta(description="`plan` of a dry run: 409 unless the operation would still do just that"),
    ] = None


class MoveRequest(_Request, frozen=True, kw_only=True, tag="move"):
    """Pin a stream to a member, so that it moves there."""

    stream: Annotated[int, Meta(ge=0)]
    to: Annotated[MemberName, Meta(description="the member that gets the stream")]


class UnpinRequest(_Request, frozen=True, kw_only=True, tag="unpin"):
    """Remove a stream's pin."""

    stream: Annotated[int, Meta(ge=0)]


class DrainRequest(_Request, frozen=True, kw_only=True, tag="drain"):
    """Make a member hand over all its streams and leave."""

    member: MemberName


class UndrainRequest(_Request, frozen=True, kw_only=True, tag="undrain"):
    """Make a member that is still draining take streams again."""

    member: MemberName


class RebalanceRequest(_Request, frozen=True, kw_only=True, tag="rebalance"):
    """Remove all pins, so that shares become even."""


class PauseRequest(_Request, frozen=True, kw_only=True, tag="pause"):
    """Make the group's members read nothing; they keep their streams, and commit what they have read."""


class ResumeRequest(_Request, frozen=True, kw_only=True, tag="resume"):
    """End the group's pause."""


class RewindRequest(_Request, frozen=True, kw_only=True, tag="rewind"):
    """Make another group that follows this one, and reads again what this one has read."""

    as_: Annotated[str, Meta(min_length=1, max_length=61, description="the new group")] = msgspec.field(
        name="as"
    )
    to: Annotated[
        To,
        Meta(
            description="where it starts: `earliest`, `latest`, a time (RFC 3339, or ms UTC), or offsets by "
            "stream; streams that are not named start at `latest`"
        ),
    ] = "earliest"
    streams: Annotated[
        list[Annotated[int, Meta(ge=0)]] | None, Meta(description="the others start at `latest`")
    ] = None
    settings: Annotated[
        dict[str, int | str], Meta(description="the settings in which the new group differs")
    ] = {}
    alone: Annotated[bool, Meta(description="it follows nobody: only its own sessions are current")] = False


class PromoteRequest(_Request, frozen=True, kw_only=True, tag="promote"):
    """Give the group another name, under which jobs and readers find it from now on."""

    alias: Annotated[str, Meta(min_length=1, max_length=61)]


OperationRequest = (
    RewindRequest
    | PromoteRequest
    | MoveRequest
    | UnpinRequest
    | DrainRequest
    | UndrainRequest
    | RebalanceRequest
    | PauseRequest
    | ResumeRequest
)


class OperationPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the operations, newest first unless sorted otherwise."""

    operations: list[Operation]
    next: NextCursor


ANSWERED = (Forecast, RewindForecast, Operation, OperationDetail, OperationPage)
FORECAST: Responses = {
    200: {
        "description": "With `dry_run`: what would move; of a rewind, where the new group would start",
        "content": {JSON: {"schema": {"anyOf": [schema_of(Forecast), schema_of(RewindForecast)]}}},
    }
}
OPERATIONS: Listing[Operation] = Listing(
    columns=columns_of(
        *("id", "kind", "group", "state", "who", "since", "ended_at", "done", "total", "sessions", "bytes")
    ),
    default="-since,-id",
)


def wish_of(request: Any) -> Wish:
    """The request in the core's form."""
    return msgspec.convert(msgspec.to_builtins(request), Wish)


async def _on_groups(
    groups: Groups, requested: RewindRequest | PromoteRequest, caller: str, key: str | None
) -> Response:
    """Makes a group that follows another one, or gives it another name; or says what that would do."""
    cause = cause_of(caller, requested.reason, key, requested)
    if isinstance(requested, RewindRequest):
        wish = msgspec.convert(msgspec.to_builtins(requested), RewindWish)
        if requested.dry_run:
            return encoded(await groups.forecast(wish))
        operation = await groups.rewind(wish, cause, if_plan=requested.if_plan)
    elif requested.dry_run:
        return encoded(groups.forecast_promotion(requested.group, requested.alias))
    else:
        alias, if_plan = requested.alias, requested.if_plan
        operation = await groups.promote(requested.group, alias, cause, if_plan=if_plan)
    return encoded(operation, 202, location=f"/operations/{operation.id}")


def operations_routes(operations: Operations, groups: Groups) -> APIRouter:
    """The routes over `operations` and `groups`."""
    routes = APIRouter(tags=["operations"], responses=INVALID | NOT_FOUND | UNANSWERED)
    _start(routes, operations, groups)
    _list(routes, operations)
    _show(routes, operations)
    _cancel(routes, operations)
    return routes


def _start(routes: APIRouter, operations: Operations, groups: Groups) -> None:
    @routes.post(
        "/operations",
        status_code=202,
        summary="Move a stream, drain a member, pause a group, or undo that",
        openapi_extra=takes(OperationRequest, "the operation; `kind` selects its fields"),
        responses=answers(Operation, 202, "The operation has begun; `Location` names it")
        | FORECAST
        | BAD_BODY
        | GUARDED
        | refuses(409, "Nothing would change, the plan has changed, or `operation` is in the way"),
    )
    async def start(request: Request, idempotency_key: IdempotencyKey = None) -> Response:
        requested: OperationRequest = await read_body(request, OperationRequest)
        if isinstance(requested, RewindRequest | PromoteRequest):
            return await _on_groups(groups, requested, caller_of(request).name, idempotency_key)
        wish = wish_of(requested)
        if requested.dry_run:
            return encoded(operations.forecast(wish))
        cause = cause_of(caller_of(request).name, requested.reason, idempotency_key, requested)
        operation = await operations.start(wish, cause, if_plan=requested.if_plan)
        return encoded(operation, 202, location=f"/operations/{operation.id}")


def _list(routes: APIRouter, operations: Operations) -> None:
    @routes.get(
        "/operations",
        summary="List the operations, newest first",
        responses=answers(OperationPage),
        dependencies=LISTED,
    )
    async def listed(
        paging: Annotated[ShortPaging, Depends()],
        after: Annotated[
            str, Query(max_length=100, description="return only operations older than this one")
        ] = "",
        group: Annotated[list[Name] | None, Query(description="only operations on this group")] = None,
        kind: Annotated[list[Kind] | None, Query(description="only operations of this kind")] = None,
        state: Annotated[
            list[OperationState] | None, Query(description="only operations in this state")
        ] = None,
    ) -> Response:
        every = operations.all()
        if after:
            every = every[every.index(operations.operation_of(after)) + 1 :]
        found = select(every, group=group, kind=kind, state=state)
        page, cursor = paging.page(OPERATIONS, found, (after, group, kind, state))
        return encoded(OperationPage(operations=list(page), next=cursor))


def _show(routes: APIRouter, operations: Operations) -> None:
    @routes.get(
        "/operations/{operation_id}",
        summary="Show an operation and its progress",
        responses=answers(OperationDetail),
    )
    async def one(operation_id: str) -> Response:
        return encoded(operations.detail(operation_id))


def _cancel(routes: APIRouter, operations: Operations) -> None:
    @routes.delete(
        "/operations/{operation_id}",
        summary="Cancel an operation",
        responses=answers(Operation, description="The operation is cancelled, and its effect undone")
        | GUARDED
        | refuses(409, "It is done or has failed, or another operation undoes it"),
    )
    async def cancel(request: Request, operation_id: str, reason: Reason = "") -> Response:
        cause = cause_of(caller_of(request).name, reason, None, None)
        return encoded(await operations.cancel(operation_id, cause))
