"""`GET /streams`, `GET /streams/{n}`: a group's streams, from the view's memory."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Depends, Path, Query, Response

from services.control.core.paging import Listing, columns_of, select
from services.control.core.report.burrow import Status
from services.control.core.report.observed import StreamState
from services.control.core.report.report import totals_of
from services.control.core.report.rows import StreamDetail, StreamRow, StreamTotals
from services.control.http.api.openapi import answers, encoded
from services.control.http.api.pages import (
    INVALID,
    LISTED,
    NOT_FOUND,
    UNAVAILABLE,
    Group,
    Name,
    NextCursor,
    Paging,
    StaleMs,
    joined,
)
from services.control.live.view.cluster_view import ClusterView
from shared.model.names import DEFAULT_GROUP


class StreamPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of a group's streams, in the order of their numbers unless sorted otherwise."""

    streams: list[StreamRow]
    totals: StreamTotals
    next: NextCursor
    stale_ms: StaleMs


ANSWERED = (StreamPage, StreamDetail)
STREAMS: Listing[StreamRow] = Listing(
    columns=columns_of(
        *("stream", "owner", "epoch", "state", "position", "end", "lag", "lag_ms", "rate", "read_rate"),
        *("safe_offset", "open_sessions", "state_bytes", "status", "failures", "pinned_to"),
    ),
    default="stream",
)
_encode = msgspec.json.Encoder().encode


def streams_routes(view: ClusterView) -> APIRouter:
    """The routes over the view."""
    routes = APIRouter(tags=["streams"], responses=INVALID | NOT_FOUND | UNAVAILABLE)

    @routes.get(
        "/streams", summary="List the streams of a group", responses=answers(StreamPage), dependencies=LISTED
    )
    async def streams(
        paging: Annotated[Paging, Depends()],
        group: Group = DEFAULT_GROUP,
        after: Annotated[int, Query(ge=-1, description="return only streams above this number")] = -1,
        owner: Annotated[list[Name] | None, Query(description="only streams of this member")] = None,
        state: Annotated[list[StreamState] | None, Query(description="only streams in this state")] = None,
        status: Annotated[list[Status] | None, Query(description="only streams of this status")] = None,
        pinned: Annotated[bool | None, Query(description="only streams with a pin, or without one")] = None,
    ) -> Response:
        every = view.streams(group)
        found = select(every[after + 1 :], owner=owner, state=state, status=status)
        found = [row for row in found if pinned in (None, row.pinned_to is not None)]
        rows, cursor = paging.page(STREAMS, found, (group, after, owner, state, status, pinned))
        return joined(
            "streams",
            list(map(_encode, rows)),
            view.stale_ms(),
            totals=_encode(totals_of(every)),
            next=cursor,
        )

    @routes.get("/streams/{stream}", summary="Show one stream of a group", responses=answers(StreamDetail))
    async def stream(stream: Annotated[int, Path(ge=0)], group: Group = DEFAULT_GROUP) -> Response:
        return encoded(view.stream(group, stream))

    return routes
