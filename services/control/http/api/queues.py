"""`/queues`: the queues from control's memory, their last hour, their dead letters, and what is done to them.

Clients lease and settle items at the workers of the queue service; control only looks, purges and redrives.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Depends, Header, Query, Request, Response
from msgspec import Meta

from services.control.core.causes import cause_of
from services.control.core.history.queue_history import QueueHistory
from services.control.core.paging import Listing, columns_of
from services.control.core.queues import Act, DeadLetter, QueueChange, QueueRow
from services.control.http.api.access.caller import caller_of
from services.control.http.api.openapi import answers, encoded, read_body, refuses, takes
from services.control.http.api.pages import (
    BAD_BODY,
    GUARDED,
    INVALID,
    LISTED,
    MAX_KEY,
    MAX_REASON,
    AfterName,
    NextCursor,
    Paging,
    StaleMs,
)
from services.control.live.queues.history import QueueHours
from services.control.live.queues.queues import REMEMBERED, Queues

MOST_LETTERS = 50
ActKey = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=MAX_KEY,
        description="names this request: a repeated one does nothing, and returns what the first one did. "
        f"Kept in memory: until control restarts, or {REMEMBERED:,} others follow. A failure leaves it free",
    ),
]
_UNKNOWN = refuses(404, "There is no such queue")
_UNANSWERED = refuses(503, "No queue worker answers, or control does not know one (BATON_QUEUE_URL)")


class QueuePage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the queues, in the order of their names unless sorted otherwise."""

    queues: list[QueueRow]
    next: NextCursor
    stale_ms: StaleMs


class DeadLetters(msgspec.Struct, frozen=True, kw_only=True):
    """The oldest dead letters of a queue."""

    queue: str
    letters: list[DeadLetter]


class QueueActRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A purge or a redrive; an empty body does it."""

    dry_run: Annotated[bool, Meta(description="only answer what would be done")] = False
    reason: Annotated[
        str, Meta(max_length=MAX_REASON, description="why, in your words; an event keeps it")
    ] = ""


ANSWERED = (QueuePage, QueueHistory, DeadLetters, QueueChange)
QUEUES: Listing[QueueRow] = Listing(
    columns=columns_of("queue", "ready", "leased", "waiting", "dead", "oldest_age_s"), default="queue"
)


def queues_routes(queues: Queues, hours: QueueHours) -> APIRouter:
    """The routes over the queues and their last hour."""
    routes = APIRouter(tags=["queues"], responses=INVALID | _UNANSWERED)
    _list(routes, queues)
    _show(routes, queues, hours)
    _acts(routes, queues)
    return routes


def _list(routes: APIRouter, queues: Queues) -> None:
    @routes.get("/queues", summary="List the queues", responses=answers(QueuePage), dependencies=LISTED)
    async def listed(
        paging: Annotated[Paging, Depends()],
        after: AfterName = "",
        dead: Annotated[
            bool | None, Query(description="only queues with dead letters, or without any")
        ] = None,
    ) -> Response:
        rows = [row for row in queues.rows() if row.queue > after]
        found = [row for row in rows if dead is None or (row.dead is not None and bool(row.dead) is dead)]
        page, cursor = paging.page(QUEUES, found, (after, dead))
        return encoded(QueuePage(queues=list(page), next=cursor, stale_ms=queues.stale_ms()))


def _show(routes: APIRouter, queues: Queues, hours: QueueHours) -> None:
    @routes.get("/queues/{queue}", summary="Show a queue", responses=answers(QueueRow) | _UNKNOWN)
    async def show(queue: str) -> Response:
        return encoded(queues.row(queue))

    @routes.get(
        "/queues/{queue}/history",
        summary="Show the last hour of a queue",
        responses=answers(QueueHistory) | _UNKNOWN,
    )
    async def history(queue: str) -> Response:
        return encoded(hours.of(queue))

    @routes.get(
        "/queues/{queue}/letters",
        summary="Look at the oldest dead letters of a queue",
        responses=answers(DeadLetters) | _UNKNOWN,
        dependencies=LISTED,
    )
    async def letters(
        queue: str, limit: Annotated[int, Query(ge=1, le=MOST_LETTERS, description="at most so many")] = 20
    ) -> Response:
        found = await queues.letters(queue, limit)
        return encoded(DeadLetters(queue=queue, letters=list(found)))


def _acts(routes: APIRouter, queues: Queues) -> None:
    responses = (
        answers(QueueChange, description="What was done, or with `dry_run` what would be")
        | _UNKNOWN
        | BAD_BODY
        | GUARDED
        | refuses(409, "The queue cannot be redriven: it has no topic of its own")
    )
    taken = takes(QueueActRequest | None, "whether to do it, and why", required=False)

    async def answer(request: Request, queue: str, act: Act, key: str | None) -> Response:
        asked: QueueActRequest = await read_body(request, QueueActRequest | None) or QueueActRequest()
        if asked.dry_run:
            return encoded(await queues.forecast(queue, act))
        cause = cause_of(caller_of(request).name, asked.reason, key, [queue, act, asked])
        return encoded(await queues.act(queue, act, cause))

    @routes.post("/queues/{queue}/purge", summary="Drop all items", responses=responses, openapi_extra=taken)
    async def purge(request: Request, queue: str, idempotency_key: ActKey = None) -> Response:
        return await answer(request, queue, "purge", idempotency_key)

    @routes.post(
        "/queues/{queue}/redrive",
        summary="Put the dead letters back into the queue",
        responses=responses,
        openapi_extra=taken,
    )
    async def redrive(request: Request, queue: str, idempotency_key: ActKey = None) -> Response:
        return await answer(request, queue, "redrive", idempotency_key)
