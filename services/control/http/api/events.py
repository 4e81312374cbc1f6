"""`GET /events`: what happened, as a list, or as server-sent events for as long as a client listens.

The `Accept` header selects the form. Everything comes from the feed's memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from msgspec import Meta
from starlette.responses import StreamingResponse
from starlette.types import Send

from services.control.core.events.recent_events import EventFilter, RecentEvents, StoredEvent
from services.control.http.api.access.caller import caller_of, is_admitted
from services.control.http.api.openapi import Responses, answers, refuses, schema_of
from services.control.http.api.pages import INVALID, LISTED, MAX_LIMIT, NOT_FOUND, StaleMs, joined
from services.control.live.feed.feed import EventFeed
from shared.model.events import Event, Kind

EVENT_STREAM = "text/event-stream"
SEND_TIMEOUT_S = 30.0
"""A follower that accepts no data for this long is cut off: it is gone, or would only see stale events."""

_OFFSET = re.compile(r"[0-9]{1,18}")


class EventRow(Event, frozen=True, kw_only=True):
    """One event; fields that do not apply are left out."""

    id: Annotated[int, Meta(description="its offset in the topic")]


class EventPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the events, oldest first."""

    events: list[EventRow]
    oldest: Annotated[
        int | None,
        Meta(description="id of the oldest event that control keeps; older ones are only in the topic"),
    ]
    stale_ms: StaleMs


ANSWERED = (EventPage, EventRow)


class EventStream(StreamingResponse):
    """The chunks as server-sent events, for as long as the client reads them and may see them."""

    media_type = EVENT_STREAM

    def __init__(self, request: Request, chunks: AsyncGenerator[bytes]) -> None:
        super().__init__(chunks, headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        self._is_admitted = partial(is_admitted, request)

    async def stream_response(self, send: Send) -> None:
        """Sends each chunk within SEND_TIMEOUT_S, or ends the response; the client may reconnect.

        It also ends at the first chunk after the caller's login has expired; heartbeats are chunks.
        """
        chunks: Any = self.body_iterator
        start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        async with contextlib.aclosing(chunks):
            with contextlib.suppress(TimeoutError):
                await send(start)
                async for chunk in chunks:
                    if not self._is_admitted():
                        break
                    async with asyncio.timeout(SEND_TIMEOUT_S):
                        await send({"type": "http.response.body", "body": chunk, "more_body": True})
                async with asyncio.timeout(SEND_TIMEOUT_S):
                    await send({"type": "http.response.body", "body": b"", "more_body": False})


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which events to return; `Annotated[Wanted, Depends()]` in a route."""

    limit: Annotated[int, Query(ge=1, le=MAX_LIMIT, description="maximum number of past events")] = 100
    after: Annotated[
        int | None, Query(ge=-1, description="return only events above this id; without it, the newest")
    ] = None
    before: Annotated[
        int | None, Query(ge=0, description="return the newest events below this id: an older page")
    ] = None
    group: Annotated[str | None, Query(max_length=100, description="only events of this group")] = None
    stream: Annotated[int | None, Query(ge=0, description="only events of this stream")] = None
    kind: Annotated[list[Kind] | None, Query(description="only events of this kind; may be repeated")] = None
    member: Annotated[
        str | None,
        Query(max_length=300, description="only events of this member, as donor or recipient too"),
    ] = None

    @property
    def filter(self) -> EventFilter:
        """What an event must match."""
        kinds = frozenset(self.kind or ())
        return EventFilter(group=self.group, stream=self.stream, kinds=kinds, member=self.member)

    def page_of(self, past: RecentEvents) -> list[StoredEvent]:
        """The page of the past events. Raises RequestValidationError."""
        match self.before, self.after:
            case None, None:
                return past.newest(self.limit, self.filter)
            case None, int(after):
                return past.after(after, self.limit, self.filter)
            case int(before), None:
                return past.before(before, self.limit, self.filter)
        fault = {"loc": ("query", "before"), "msg": "it goes without `after`"}
        raise RequestValidationError([fault])


def last_seen(last_event_id: str, after: int | None) -> int | None:
    """Where server-sent events continue: after the header `Last-Event-ID`, else after the query's `after`.

    >>> last_seen("7", 3), last_seen("", 3), last_seen("9" * 5000, None)
    (7, 3, None)
    """
    # we never sent such an id, so a malformed one counts as none
    return int(last_event_id) if _OFFSET.fullmatch(last_event_id) else after


def events_routes(feed: EventFeed, check_group: Callable[[str], None]) -> APIRouter:
    """The route over the feed. For a group without events, `check_group` raises if it is unknown."""
    unread = refuses(503, "The events, or for a group without events ZooKeeper, have not been read yet")
    routes = APIRouter(tags=["events"], responses=INVALID | NOT_FOUND | unread)

    @routes.get("/events", summary="List or follow the events", responses=_responses(), dependencies=LISTED)
    async def events(
        request: Request,
        wanted: Annotated[Wanted, Depends()],
        last_event_id: Annotated[
            str, Header(description="the last id that the client saw: server-sent events continue after it")
        ] = "",
    ) -> Response:
        feed.require_read()
        if wanted.group is not None and not feed.recent_events.has_group(wanted.group):
            check_group(wanted.group)
        if EVENT_STREAM in request.headers.get("accept", ""):
            after, holder = last_seen(last_event_id, wanted.after), caller_of(request).name
            chunks = feed.follow(after, wanted.limit, wanted.filter, holder)
            return EventStream(request, chunks)
        past = feed.recent_events
        rows = [event.row for event in wanted.page_of(past)]
        return joined("events", rows, feed.stale_ms(), oldest=past.oldest)

    return routes


def _responses() -> Responses:
    responses = answers(EventPage, description="For `Accept: text/event-stream`, each event as it happens")
    responses[200]["content"][EVENT_STREAM] = {
        "schema": {
            "type": "string",
            "description": "each `data` line holds one event, each `id` line its id",
            "contentMediaType": "application/json",
            "contentSchema": schema_of(EventRow),
        }
    }
    return responses
