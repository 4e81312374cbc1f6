"""`GET /events`: what happened, as a list, or for as long as one listens as server-sent events.

Which of both the `Accept` header says. Everything comes from the feed's memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from starlette.responses import StreamingResponse
from starlette.types import Send

from services.control.api import event_models
from services.control.core.recent_events import Wanted
from services.control.live.feed import EventFeed
from shared.model.events import Kind
from shared.service.http import PROBLEM

EVENT_STREAM = "text/event-stream"
MAX_LIMIT = 5000
SEND_TIMEOUT_S = 30.0
"""A follower that takes nothing for so long is cut off: it is gone, or its events would only grow old."""

_OFFSET = re.compile(r"[0-9]{1,18}")
_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The events; asked for text/event-stream, each as it happens",
        "content": {EVENT_STREAM: {}},
    },
    503: {"description": "The events have not been read yet", "content": {PROBLEM: {}}},
}


class EventStream(StreamingResponse):
    """A response that goes on for as long as it is listened to, and not longer."""

    media_type = EVENT_STREAM

    async def stream_response(self, send: Send) -> None:
        """Sends each chunk in bounded time; a client that does not take it is left, and may come back."""
        chunks: Any = self.body_iterator
        start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        async with contextlib.aclosing(chunks):
            with contextlib.suppress(TimeoutError):
                await send(start)
                async for chunk in chunks:
                    async with asyncio.timeout(SEND_TIMEOUT_S):
                        await send({"type": "http.response.body", "body": chunk, "more_body": True})
                async with asyncio.timeout(SEND_TIMEOUT_S):
                    await send({"type": "http.response.body", "body": b"", "more_body": False})


def events_routes(feed: EventFeed) -> APIRouter:
    """The route, on this feed."""
    routes = APIRouter(tags=["events"], responses=_RESPONSES)

    @routes.get("/events", response_model=event_models.Events, summary="What happened, and what happens")
    async def events(
        request: Request,
        limit: Annotated[
            int, Query(ge=1, le=MAX_LIMIT, description="events at most (of those that are there)")
        ] = 100,
        after: Annotated[
            int | None, Query(ge=-1, description="only events above this id; without it the newest")
        ] = None,
        group: Annotated[str | None, Query(max_length=100, description="only of this group")] = None,
        stream: Annotated[int | None, Query(ge=0, description="only of this stream")] = None,
        kind: Annotated[list[Kind] | None, Query(description="only of this kind; may be repeated")] = None,
        member: Annotated[
            str | None, Query(max_length=300, description="only of this member, as giver and taker too")
        ] = None,
        last_event_id: Annotated[
            str, Header(description="the last id that was seen: server-sent events go on after it")
        ] = "",
    ) -> Response:
        wanted = Wanted(group=group, stream=stream, kinds=frozenset(kind or ()), member=member)
        if EVENT_STREAM in request.headers.get("accept", ""):
            # what is no id of ours was never given by us: as without one
            seen = int(last_event_id) if _OFFSET.fullmatch(last_event_id) else after
            chunks = feed.follow(seen, limit, wanted)
            return EventStream(chunks, headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        feed.require_read()
        recent_events = feed.recent_events
        found = (
            recent_events.newest(limit, wanted)
            if after is None
            else recent_events.after(after, limit, wanted)
        )
        body = b'{"events":[%b],"stale_ms":%d}' % (b",".join(told.row for told in found), feed.stale_ms())
        return Response(body, media_type="application/json")

    return routes
