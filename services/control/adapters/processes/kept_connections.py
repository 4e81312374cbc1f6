"""Asks the same addresses again and again, over HTTP: connections stay open, and a request costs little.

Control asks every member twice a second. Through httpx, that took most of control's CPU (ADR 49). It follows
no redirects, and uses no proxy, cookies or compression. The only file that imports aiohttp.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final, Self

import aiohttp

from shared.service.tls import TlsFiles, client_context

ANSWER_TIMEOUT_S: Final = 2.0
"""For the whole request, including a new connection."""
MOST_BYTES: Final = 1 << 25
"""Of an answer's body: the status of 10,000 streams has some 2 MB."""

Ask = Callable[[str], Awaitable[bytes | None]]
"""Returns the body if the URL answers 200 in time, else None."""
logger = logging.getLogger(__name__)


class KeptConnections:
    """An async context manager that closes its connections. Each carries one request at a time."""

    def __init__(self, tls: TlsFiles | None = None) -> None:
        self._tls = tls or TlsFiles()

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=client_context(self._tls), limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=ANSWER_TIMEOUT_S),
            skip_auto_headers=("Accept-Encoding",),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def get(self, url: str) -> bytes | None:
        """The body if the URL answers 200 within ANSWER_TIMEOUT_S, else None."""
        try:
            async with self._session.get(url, allow_redirects=False) as response:
                return await _body_of(response) if response.status == 200 else None
        # ValueError: no such address can exist
        except (aiohttp.ClientError, OSError, ValueError) as error:
            logger.debug("no answer", extra={"url": url, "why": repr(error)})
            return None


async def _body_of(response: aiohttp.ClientResponse) -> bytes:
    """Raises ValueError if it is too long."""
    body = bytearray()
    async for part in response.content.iter_any():
        body += part
        if len(body) > MOST_BYTES:
            raise ValueError("the answer is too long")
    return bytes(body)
