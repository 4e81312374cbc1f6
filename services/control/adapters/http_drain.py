"""Makes a member drain, or take streams again, by a signed `POST /drain` or `POST /undrain` to it.

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
from shared.model.secrets import Secrets
from shared.service.signing import Envelope, digest_of, new_nonce, sealed_headers
from shared.service.tls import tls_fault

ANSWER_TIMEOUT_S = 5.0
SENDER = "control"
"""The sender's name in the signature: members sign with their ids, control has none."""


class HttpDrain:
    """A `MemberDrain`; `secrets` returns the keys of requests between the processes of this namespace."""

    def __init__(
        self,
        http: httpx.AsyncClient,
        secrets: Callable[[], Awaitable[Secrets]],
        namespace: str = "",
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._http = http
        self._secrets = secrets
        self._namespace = namespace
        self._wall_ms = wall_ms

    async def drain(self, group: str, member: str, address: str, why: str) -> None:
        """Returns once the member is draining. Raises PeerUnavailable."""
        await self._post("drain", group, member, address, why)

    async def undrain(self, group: str, member: str, address: str, why: str) -> None:
        """Returns once the member takes streams again. Raises PeerUnavailable, also if it cannot."""
        await self._post("undrain", group, member, address, why)

    async def _post(self, what: str, group: str, member: str, address: str, why: str) -> None:
        body = msgspec.json.encode({"why": why})
        secrets = await self._secrets()
        envelope = Envelope(
            sender=SENDER,
            recipient=member,
            namespace=self._namespace,
            group=group,
            at_ms=self._wall_ms(),
            nonce=new_nonce(),
            method="POST",
            target=f"/{what}",
            digest=digest_of(body),
            length=len(body),
        )
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                response = await self._http.post(
                    f"{address}/{what}", content=body, headers=sealed_headers(secrets, envelope)
                )
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
            why = tls_fault(error) or str(error) or type(error).__name__
            raise PeerUnavailable(f"{member} does not answer: {why}") from None
        if not response.is_success:
            raise PeerUnavailable(f"{member} does not {what}: {_words_of(response)}")


def _words_of(response: httpx.Response) -> str:
    try:
        answer = msgspec.json.decode(response.content, type=dict[str, Any])
    except msgspec.DecodeError:
        answer = {}
    return str(answer.get("detail") or f"it answers {response.status_code}")
