"""Asks the owner of a stream what it holds in memory, by signed requests to it."""

from __future__ import annotations

from typing import TypeVar
from urllib.parse import quote

import msgspec

from services.control.adapters.processes.signed_requests import Recipient, SignedRequests
from shared.errors import PeerUnavailable
from shared.model.open_sessions import HeldKey, HeldStream

ANSWER_TIMEOUT_S = 1.0
"""A page waits for the answer, and an owner that is well needs a few milliseconds."""

T = TypeVar("T")


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
        answer = await self._requests.send(to, "GET", target, within_s=ANSWER_TIMEOUT_S)
        try:
            return msgspec.json.decode(answer, type=kind)
        except msgspec.DecodeError as error:
            raise PeerUnavailable(f"the answer of {member} cannot be read", cause=str(error)) from None
