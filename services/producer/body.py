"""The body of a request: read and decoded, and counted while it is.

Used by the door. A decoder is made only when the whole body is there, and the decoded bytes are counted
as the encoded ones are, piece by piece: what would be too large is given up at the limit.
"""

from __future__ import annotations

import asyncio

from starlette.types import Receive

from services.producer.core.form import Coding
from services.producer.decoding import decoded
from services.producer.inflight import Hold
from shared.errors import BatonError


class SlowRequest(BatonError):
    """The body did not arrive in time."""


class Gone(Exception):
    """The client went away before its body was complete; nobody is there to be answered."""


async def read_body(receive: Receive, hold: Hold, timeout_s: float) -> list[bytes]:
    """The body as it arrives, in chunks.

    Raises Gone, SlowRequest, and what Hold.add raises.
    """
    chunks: list[bytes] = []

    async def read_chunk() -> bool:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Gone
        chunk: bytes = message.get("body", b"")
        hold.add(len(chunk))
        chunks.append(chunk)
        more: bool = message.get("more_body", False)
        return more

    if await read_chunk():
        # a bound only for what did not come in one piece: it costs 4 µs
        try:
            async with asyncio.timeout(timeout_s):
                while await read_chunk():
                    pass
        except TimeoutError:
            raise SlowRequest from None
    return chunks


def decode_body(chunks: list[bytes], coding: Coding, hold: Hold) -> list[bytes]:
    """What the chunks hold, decoded; they are emptied. Raises what `decoded` and Hold.add raise."""
    body = b"".join(chunks)
    chunks.clear()
    hold.begin_decoding()
    pieces: list[bytes] = []
    for piece in decoded(body, coding):
        hold.add(len(piece))
        pieces.append(piece)
    hold.end_decoding()
    return pieces
