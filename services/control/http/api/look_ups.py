"""Looks up keys, sessions, and what a stream holds.

The paths are `/keys`, `/sessions`, `/sessions/{id}`, `/streams/{n}/open`, `…/keys` and `…/fragments`.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from services.control.core.found import Finished, KeyRow, OpenRow, RecordPage, SessionRow, StreamKeys
from services.control.http.api.openapi import answers, encoded
from services.control.http.api.pages import INVALID, NOT_FOUND, UNAVAILABLE, Group
from services.control.live.look_ups import LookUp
from shared.model.fragments import MAX_KEY_BYTES
from shared.model.names import DEFAULT_GROUP

ANSWERED = (KeyRow, Finished, SessionRow, OpenRow, RecordPage, StreamKeys)
MOST_SESSIONS = 100
MOST_RECORDS = 500
SESSION_ID = r"^[0-9a-f]{32}$"

Stream = Annotated[int, Path(ge=0)]
Day = Annotated[
    str,
    Query(
        pattern="^[0-9]{4}-[0-9]{2}-[0-9]{2}$", description="of their first fragment's append time, in UTC"
    ),
]
Sessions = Annotated[int, Query(ge=1, le=MOST_SESSIONS, description="maximum of finished sessions")]
After = Annotated[str, Query(max_length=100, description="the `next` of the page before")]


def lookup_routes(look_up: LookUp) -> APIRouter:
    """The routes over the look-ups."""
    routes = APIRouter(tags=["look-up"], responses=INVALID | NOT_FOUND | UNAVAILABLE)

    @routes.get("/keys", summary="Find a key and its sessions", responses=answers(KeyRow))
    async def key(
        key: Annotated[str, Query(min_length=1, max_length=MAX_KEY_BYTES, description="the key, any text")],
        group: Group = DEFAULT_GROUP,
        limit: Sessions = 20,
        after: After = "",
        data: Annotated[bool, Query(description="with the fragments of the finished sessions")] = False,
    ) -> Response:
        return encoded(await look_up.key(group, key, limit=limit, after=after, with_data=data))

    @routes.get("/sessions", summary="List the finished sessions of a day", responses=answers(Finished))
    async def day(
        day: Day,
        group: Group = DEFAULT_GROUP,
        limit: Sessions = 20,
        after: After = "",
    ) -> Response:
        return encoded(await look_up.day(group, day, limit=limit, after=after))

    @routes.get("/sessions/{session_id}", summary="Show a finished session", responses=answers(SessionRow))
    async def session(session_id: Annotated[str, Path(pattern=SESSION_ID)]) -> Response:
        return encoded(await look_up.session(session_id))

    @routes.get("/streams/{stream}/open", summary="Show what a stream holds", responses=answers(OpenRow))
    async def open_(stream: Stream, group: Group = DEFAULT_GROUP) -> Response:
        return encoded(await look_up.open(group, stream))

    @routes.get(
        "/streams/{stream}/keys", summary="Show the heaviest keys of a stream", responses=answers(StreamKeys)
    )
    async def keys(stream: Stream, group: Group = DEFAULT_GROUP) -> Response:
        return encoded(await look_up.keys(group, stream))

    @routes.get(
        "/streams/{stream}/fragments",
        summary="Show the newest records of a stream",
        responses=answers(RecordPage),
    )
    async def fragments(
        stream: Stream,
        limit: Annotated[int, Query(ge=1, le=MOST_RECORDS, description="maximum number of records")] = 20,
        before: Annotated[
            int | None, Query(ge=0, le=2**63 - 1, description="return only records below this offset")
        ] = None,
    ) -> Response:
        return encoded(await look_up.fragments(stream, limit, before))

    return routes
