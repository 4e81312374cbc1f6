"""Makes a member drain, or take streams again, by a signed `POST /drain` or `POST /undrain` to it."""

from __future__ import annotations

import msgspec

from services.control.adapters.processes.signed_requests import Recipient, SignedRequests
from shared.errors import PeerUnavailable

ANSWER_TIMEOUT_S = 5.0


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
            await self._requests.send(to, "POST", f"/{what}", body, within_s=ANSWER_TIMEOUT_S)
        except PeerUnavailable as error:
            raise PeerUnavailable(f"{to.member} does not {what}: {error.detail}") from None
