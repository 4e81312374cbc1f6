"""`GET /history`, `GET /streams/{n}/history`: the last hour in columns of numbers, from control's memory."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response

from services.control.core.history.group_history import GroupHistory, StreamHistory
from services.control.http.api.openapi import answers, encoded
from services.control.http.api.pages import INVALID, NOT_FOUND, UNAVAILABLE, Group
from services.control.live.view.history import History
from shared.model.names import DEFAULT_GROUP

ANSWERED = (GroupHistory, StreamHistory)


def history_routes(history: History) -> APIRouter:
    """The routes over the history."""
    routes = APIRouter(tags=["history"], responses=INVALID | NOT_FOUND | UNAVAILABLE)

    @routes.get("/history", summary="Show the last hour of a group", responses=answers(GroupHistory))
    async def of_group(group: Group = DEFAULT_GROUP) -> Response:
        return encoded(history.of_group(group))

    @routes.get(
        "/streams/{stream}/history",
        summary="Show the last hour of a stream",
        responses=answers(StreamHistory),
    )
    async def of_stream(stream: Annotated[int, Path(ge=0)], group: Group = DEFAULT_GROUP) -> Response:
        return encoded(history.of_stream(group, stream))

    return routes
