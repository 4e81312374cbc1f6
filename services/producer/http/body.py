"""Decodes the body of a request with fragments, and bounds the bodies of all others.

A decoder is created only when the whole body is there (decoding.py says why). Decoded bytes count piece by
piece, as encoded ones do, so a body that would be too large is rejected at the limit. Used by `door.py`.
"""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.producer.core.form import Coding
from services.producer.http.decoding import decoded
from services.producer.http.protocol.limits import InflightShare

MAX_SMALL_BYTES = 16 * 1024


def decode_body(chunks: list[bytes], coding: Coding, share: InflightShare) -> list[bytes]:
    """The decoded pieces of the body; empties `chunks`. Raises what `decoded` and InflightShare.add raise."""
    body = b"".join(chunks)
    # the chunks and their copy together would be twice what was counted
    chunks.clear()
    share.begin_decoding()
    pieces: list[bytes] = []
    for piece in decoded(body, coding):
        share.add(len(piece))
        pieces.append(piece)
    share.end_decoding()
    return pieces


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
