"""Sends signed requests to members: what an owner holds of a stream, to drain, and to take streams again.

One envelope per request; an answer within a time, or a reason. Requests go only to addresses that members
have registered, and follow no redirect. One of control's files that import httpx.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from shared.errors import PeerUnavailable
from shared.model.open_sessions import HeldKey, HeldStream
from shared.model.secrets import Secrets
from shared.service.signing import Envelope, digest_of, new_nonce, sealed_headers
from shared.service.tls import tls_fault

SENDER = "control"
"""The sender's name in the signature: members sign with their ids, control has none."""
HELD_S = 1.0
"""A page waits for the answer, and an owner that is well needs a few milliseconds."""
DRAIN_S = 5.0

T = TypeVar("T")


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


class HttpOwners:
    """An `OwnerSource`."""

    def __init__(self, requests: SignedRequests) -> None:
        self._requests = requests

    async def key(self, group: str, member: str, address: str, stream: int, key: str) -> HeldKey:
        """What the member holds of the key. Raises PeerUnavailable."""
        target = f"/open/{stream}/session?key={quote(key, safe='')}"
        return await self._get(group, member, address, target, HeldKey)

    async def stream(self, group: str, member: str, address: str, stream: int) -> HeldStream:
        """What the member holds of the stream. Raises PeerUnavailable."""
        return await self._get(group, member, address, f"/open/{stream}", HeldStream)

    async def _get(self, group: str, member: str, address: str, target: str, kind: type[T]) -> T:
        to = Recipient(group=group, member=member, address=address)
        answer = await self._requests.send(to, "GET", target, within_s=HELD_S)
        try:
            return msgspec.json.decode(answer, type=kind)
        except msgspec.DecodeError as error:
            raise PeerUnavailable(f"the answer of {member} cannot be read", cause=str(error)) from None


class HttpDrain:
    """A `MemberDrain`."""

    def __init__(self, requests: SignedRequests) -> None:
        self._requests = requests

    async def drain(self, group: str, member: str, address: str, why: str) -> None:
        """Returns once the member is draining. Raises PeerUnavailable."""
        await self._post("drain", Recipient(group=group, member=member, address=address), why)

    async def undrain(self, group: str, member: str, address: str, why: str) -> None:
        """Returns once the member takes streams again. Raises PeerUnavailable, also if it cannot."""
        await self._post("undrain", Recipient(group=group, member=member, address=address), why)

    async def _post(self, what: str, to: Recipient, why: str) -> None:
        body = msgspec.json.encode({"why": why})
        try:
            await self._requests.send(to, "POST", f"/{what}", body, within_s=DRAIN_S)
        except PeerUnavailable as error:
            raise PeerUnavailable(f"{to.member} does not {what}: {error.detail}") from None


def words_of(response: httpx.Response) -> str:
    """Why a member refuses, in its own words."""
    try:
        answer = msgspec.json.decode(response.content, type=dict[str, Any])
    except msgspec.DecodeError:
        answer = {}
    return str(answer.get("detail") or f"it answers {response.status_code}")
