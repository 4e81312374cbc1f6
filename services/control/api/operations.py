"""The routes under /operations: what an operator may have done to who owns what."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Response

from services.control.api import operation_models as models
from services.control.live.operations import Operations
from shared.service.http import PROBLEM

JSON = "application/json"
LISTED = 100

_REFUSED: dict[int | str, dict[str, Any]] = {
    404: {"description": "There is no such group, stream, member or operation", "content": {PROBLEM: {}}},
}
_CONFLICT: dict[int | str, dict[str, Any]] = {
    200: {"description": "What would move (dry_run)", "model": models.Forecast},
    409: {
        "description": "The member takes no streams, or another operation is about the same stream",
        "content": {PROBLEM: {}},
    },
    503: {"description": "ZooKeeper or the member does not answer", "content": {PROBLEM: {}}},
}


def operations_routes(operations: Operations) -> APIRouter:
    """The routes over `operations`."""
    routes = APIRouter(tags=["operations"], responses=_REFUSED)

    @routes.post(
        "/operations",
        status_code=202,
        response_model=models.Operation,
        summary="Move a stream, drain a member, or take all pins away",
        responses=_CONFLICT,
    )
    async def start(request: models.OperationRequest) -> Response:
        wish = request.wish()
        if request.dry_run:
            return Response(msgspec.json.encode(operations.forecast(wish)), media_type=JSON)
        operation = await operations.start(wish)
        location = {"Location": f"/operations/{operation.id}"}
        return Response(msgspec.json.encode(operation), 202, headers=location, media_type=JSON)

    @routes.get("/operations", response_model=models.Operations, summary="The operations, the newest first")
    async def listed(
        limit: Annotated[int, Query(ge=1, le=1000)] = LISTED,
        after: Annotated[str, Query(max_length=100, description="only those older than this one")] = "",
    ) -> Response:
        found = list(operations.all())
        if after:
            found = found[found.index(operations.operation_of(after)) + 1 :]
        return Response(msgspec.json.encode({"operations": found[:limit]}), media_type=JSON)

    @routes.get("/operations/{operation_id}", response_model=models.Operation, summary="How far one is")
    async def one(operation_id: str) -> Response:
        return Response(msgspec.json.encode(operations.operation_of(operation_id)), media_type=JSON)

    return routes
