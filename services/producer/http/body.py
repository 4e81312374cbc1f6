"""Bounds the bodies of all requests but those with fragments."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_SMALL_BYTES = 16 * 1024


class SmallBodies:
    """Limits the bodies that `app` reads to MAX_SMALL_BYTES; FastAPI alone reads any size into memory."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        count = 0

        async def receive_counted() -> Message:
            nonlocal count
            message = await receive()
            count += len(message.get("body", b""))
            if count > MAX_SMALL_BYTES:
                raise HTTPException(413, f"a body may have at most {MAX_SMALL_BYTES} bytes here")
            return message

        await self._app(scope, receive_counted, send)
