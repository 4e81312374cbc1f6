"""`GET /problems`: what is wrong now, ranked, with what to do, and the last audit."""

from __future__ import annotations

from fastapi import APIRouter, Response

from services.control.http.api.openapi import answers, encoded
from services.control.http.api.pages import INVALID, NOT_FOUND, Group
from services.control.live.view.problems import ProblemList, Problems
from shared.model.names import DEFAULT_GROUP

ANSWERED = (ProblemList,)


def problems_routes(problems: Problems) -> APIRouter:
    """The route over the problems; it answers also while the cluster cannot be read, and says so."""
    routes = APIRouter(tags=["problems"], responses=INVALID | NOT_FOUND)

    @routes.get("/problems", summary="Show what is wrong in a group", responses=answers(ProblemList))
    async def of_group(group: Group = DEFAULT_GROUP) -> Response:
        return encoded(problems.of_group(group))

    return routes
