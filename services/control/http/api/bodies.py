"""Reads the body of a request, up to a limit: a caller must not be able to fill control's memory.

Used by the API and the login.
"""

from __future__ import annotations

from typing import Final

from fastapi import HTTPException, Request

MAX_BODY_BYTES: Final = 64 * 1024


async def bounded_body(request: Request, most: int = MAX_BODY_BYTES) -> bytes:
    """The body. Raises HTTPException (413) as soon as there are more than `most` bytes."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            raise HTTPException(413, f"a body has at most {most:,} bytes")
    return bytes(body)
