"""Reads the bodies of requests to the framework's routes, which hold no items."""

from __future__ import annotations

from starlette.requests import ClientDisconnect, Request

from services.queue.http.exchange import MAX_SMALL_BYTES
from shared.model.items import RequestTooLarge


async def small_body(request: Request) -> bytes:
    """The body of a request without items. Raises RequestTooLarge, ClientDisconnect."""
    pieces, size, is_more = [], 0, True
    # not by `Request.stream`: its generator costs more than all of this
    while is_more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        pieces.append(message.get("body", b""))
        is_more = message.get("more_body", False)
        size += len(pieces[-1])
        if size > MAX_SMALL_BYTES:
            raise RequestTooLarge(f"a body may have at most {MAX_SMALL_BYTES} bytes here")
    return b"".join(pieces)
