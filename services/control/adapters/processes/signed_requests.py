"""Sends signed requests to members: one envelope per request; an answer within a time, or a reason.

One of control's files that import httpx. It sends only to addresses that members have registered, and follows
no redirect.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import msgspec

from shared.errors import PeerUnavailable
from shared.model.secrets import Secrets
from shared.service.signing import Envelope, digest_of, new_nonce, sealed_headers
from shared.service.tls import tls_fault

SENDER = "control"
"""The sender's name in the signature: members sign with their ids, control has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipient:
    """A member, and where it answers."""

    group: str
    member: str
    address: str


@dataclass(frozen=True, slots=True)
class SignedRequests:
    """Sends through `http`; `secrets` returns the keys of requests between processes of the namespace."""

    http: httpx.AsyncClient
    secrets: Callable[[], Awaitable[Secrets]] = field(repr=False)
    namespace: str = ""
    wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000

    async def send(
        self, to: Recipient, method: str, target: str, body: bytes = b"", *, within_s: float
    ) -> bytes:
        """The body of the answer. `target`: path and query, encoded as they are sent.

        Raises PeerUnavailable without an answer in time, and for any answer but success.
        """
        secrets = await self.secrets()
        envelope = Envelope(
            sender=SENDER,
            recipient=to.member,
            namespace=self.namespace,
            group=to.group,
            at_ms=self.wall_ms(),
            nonce=new_nonce(),
            method=method,
            target=target,
            digest=digest_of(body),
            length=len(body),
        )
        try:
            async with asyncio.timeout(within_s):
                response = await self.http.request(
                    method, f"{to.address}{target}", content=body, headers=sealed_headers(secrets, envelope)
                )
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
            why = tls_fault(error) or str(error) or type(error).__name__
            raise PeerUnavailable(f"{to.member} does not answer", cause=why) from None
        if response.status_code == 404:
            raise PeerUnavailable(f"{to.member} does not know this request: it may be of an earlier version")
        if not response.is_success:
            raise PeerUnavailable(words_of(response))
        return response.content


def words_of(response: httpx.Response) -> str:
    """Why a member refuses, in its own words."""
    try:
        answer = msgspec.json.decode(response.content, type=dict[str, Any])
    except msgspec.DecodeError:
        answer = {}
    return str(answer.get("detail") or f"it answers {response.status_code}")
