"""Asks a member to drain, by its own signed `POST /drain`.

One of control's files that import httpx. It speaks only to addresses that members have registered, follows
no redirect, and takes any answer but the accepting one as a refusal with the member's own words.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Self

import httpx
import msgspec

from shared.errors import PeerUnavailable
from shared.service.signing import digest_of, signed_headers

ANSWER_TIMEOUT_S = 5.0
PATH = "/drain"
SENDER = "control"
"""Who control says that it is; only members have names of their own."""


class HttpDrain:
    """A `MemberDrain`; an async context manager that closes its connections.

    `secret` gives what requests between Baton's processes are signed with.
    """

    def __init__(
        self,
        secret: Callable[[], Awaitable[bytes]],
        transport: httpx.AsyncBaseTransport | None = None,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._client = httpx.AsyncClient(transport=transport, timeout=ANSWER_TIMEOUT_S, trust_env=False)
        self._secret = secret
        self._wall_ms = wall_ms

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def drain(self, member: str, address: str, why: str) -> None:
        """Returns once the member has begun to drain (or had before). Raises PeerUnavailable."""
        body = msgspec.json.encode({"why": why})
        secret = await self._secret()
        headers = signed_headers(secret, SENDER, "POST", PATH, digest=digest_of(body), at_ms=self._wall_ms())
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                response = await self._client.post(f"{address}{PATH}", content=body, headers=headers)
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
            raise PeerUnavailable(f"{member} does not answer: {str(error) or type(error).__name__}") from None
        if not response.is_success:
            raise PeerUnavailable(f"{member} does not drain: {_words_of(response)}")


def _words_of(response: httpx.Response) -> str:
    try:
        said: dict[str, Any] = msgspec.json.decode(response.content, type=dict[str, Any])
    except msgspec.DecodeError:
        said = {}
    return str(said.get("detail") or f"it answers {response.status_code}")
