"""The body of a request: read and decoded, and counted while it is.

Used by the door; `SmallBodies` bounds what the routes behind it read. A decoder is made only when the whole
body is there, and the decoded bytes are counted as the encoded ones are, piece by piece: what would be too
large is given up at the limit.
"""

from __future__ import annotations

import asyncio

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.producer.core.form import Coding
from services.producer.http.decoding import decoded
from services.producer.http.limits import InflightShare, Overloaded

MAX_SMALL_BYTES = 16 * 1024


class Gone(Exception):
    """The client went away before its body was complete; nobody is there to be answered."""


async def read_body(receive: Receive, hold: InflightShare) -> list[bytes]:
    """The body as it arrives, in chunks. How long it may take is the server's to say.

    Raises Gone, Overloaded when it is given up for others that arrive, and what InflightShare.add raises.
    """
    message = await receive()
    chunks = [_chunk_of(message, hold)]
    if message.get("more_body", False):
        # only for what does not come in one piece: it costs 4 µs
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(None) as patience:
                hold.arrives(lambda: patience.reschedule(loop.time()))
                while message.get("more_body", False):
                    message = await receive()
                    chunks.append(_chunk_of(message, hold))
        except TimeoutError:
            raise Overloaded from None
        hold.arrived()
    return chunks


def _chunk_of(message: Message, hold: InflightShare) -> bytes:
    if message["type"] == "http.disconnect":
        raise Gone
    chunk: bytes = message.get("body", b"")
    hold.add(len(chunk))
    return chunk


def decode_body(chunks: list[bytes], coding: Coding, hold: InflightShare) -> list[bytes]:
    """What the chunks hold, decoded; they are emptied. Raises what `decoded` and InflightShare.add raise."""
    body = b"".join(chunks)
    chunks.clear()
    hold.begin_decoding()
    pieces: list[bytes] = []
    for piece in decoded(body, coding):
        hold.add(len(piece))
        pieces.append(piece)
    hold.end_decoding()
    return pieces


class SmallBodies:
    """`app`, whose bodies may have MAX_SMALL_BYTES: FastAPI reads them whole, without a limit of its own."""

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
