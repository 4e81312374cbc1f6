"""Makes a member drain, by a signed `POST /drain` to it.

One of control's files that import httpx. It sends only to addresses that members have registered, and follows
no redirect. Any answer but success is a refusal, reported in the member's own words.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import msgspec

from shared.errors import PeerUnavailable
from shared.service.signing import digest_of, signed_headers

ANSWER_TIMEOUT_S = 5.0
PATH = "/drain"
SENDER = "control"
"""The sender's name in the signature: members sign with their ids, control has none."""


class HttpDrain:
    """A `MemberDrain`; `secret` returns the key that signs requests between Baton's processes."""

    def __init__(
        self,
        http: httpx.AsyncClient,
        secret: Callable[[], Awaitable[bytes]],
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._http = http
        self._secret = secret
        self._wall_ms = wall_ms

    async def drain(self, member: str, address: str, why: str) -> None:
        """Returns once the member is draining. Raises PeerUnavailable."""
        body = msgspec.json.encode({"why": why})
        secret = await self._secret()
        headers = signed_headers(secret, SENDER, "POST", PATH, digest=digest_of(body), at_ms=self._wall_ms())
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                response = await self._http.post(f"{address}{PATH}", content=body, headers=headers)
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
            raise PeerUnavailable(f"{member} does not answer: {str(error) or type(error).__name__}") from None
        if not response.is_success:
            raise PeerUnavailable(f"{member} does not drain: {_words_of(response)}")


def _words_of(response: httpx.Response) -> str:
    try:
        answer = msgspec.json.decode(response.content, type=dict[str, Any])
    except msgspec.DecodeError:
        answer = {}
    return str(answer.get("detail") or f"it answers {response.status_code}")
