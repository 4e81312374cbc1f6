"""Reads what callers send: a body up to a limit, so that nobody can fill control's memory, and only UTF-8.

Used by all routes.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote_to_bytes

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


async def check_query(request: Request) -> None:
    """Raises HTTPException (400) for a query that is not UTF-8.

    The framework would replace its bytes by U+FFFD, and a look-up would find another key.
    """
    try:
        unquote_to_bytes(request.scope["query_string"]).decode()
    except UnicodeDecodeError:
        raise HTTPException(400, "the query is not UTF-8") from None
