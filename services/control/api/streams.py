"""`GET /streams`, `GET /streams/{n}`: a group's streams, from the view's memory."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Path, Query, Response

from services.control.api.openapi import answers, encoded
from services.control.api.pages import (
    INVALID,
    MAX_LIMIT,
    NOT_FOUND,
    UNAVAILABLE,
    Group,
    Limit,
    StaleMs,
    joined,
)
from services.control.core.rows import StreamDetail, StreamRow, StreamTotals
from services.control.live.cluster_view import ClusterView
from shared.model.names import DEFAULT_GROUP


class StreamPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of a group's streams, in the order of their numbers."""

    streams: list[StreamRow]
    totals: StreamTotals
    stale_ms: StaleMs


ANSWERED = (StreamPage, StreamDetail)


def streams_routes(view: ClusterView) -> APIRouter:
    """The routes over the view."""
    routes = APIRouter(tags=["streams"], responses=INVALID | NOT_FOUND | UNAVAILABLE)

    @routes.get("/streams", summary="List the streams of a group", responses=answers(StreamPage))
    async def streams(
        group: Group = DEFAULT_GROUP,
        limit: Limit = MAX_LIMIT,
        after: Annotated[int, Query(ge=-1, description="return only streams above this number")] = -1,
    ) -> Response:
        found = view.streams(group)
        rows = found.rows[after + 1 : after + 1 + limit]
        return joined("streams", rows, view.stale_ms(), totals=found.totals)

    @routes.get("/streams/{stream}", summary="Show one stream of a group", responses=answers(StreamDetail))
    async def stream(stream: Annotated[int, Path(ge=0)], group: Group = DEFAULT_GROUP) -> Response:
        return encoded(view.stream(group, stream))

    return routes
