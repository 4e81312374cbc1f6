"""The other members over HTTP: `Peers` on one client, so that a delta reuses the connection of its copy.

The only file of the consumer that imports httpx. Every call ends within its time. Every error of the library,
and every answer that no member gives, is PeerUnavailable; a member's refusal is HandoverRefused with its
reason. Redirects are not followed, and answers are read up to a bound. `handover/messages.py` has the format.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Self

import httpx
import msgspec

from services.consumer.core.handover.rules import BundleRequest, Completion, Offer
from services.consumer.handover.messages import ZSTD, Message, compress, envelope_for
from services.consumer.handover.sealed_body import SealedBody
from shared.errors import BundleRejected, HandoverRefused, HandoverUnreadable, PeerUnavailable, Unauthorized
from shared.model.secrets import Secrets
from shared.service.http import PROBLEM
from shared.service.loopback import is_loopback
from shared.service.signing import Envelope, Here, new_nonce, open_envelope, sealed_headers
from shared.service.tls import CLOSED, TlsFiles, client_context, tls_fault

CONNECT_S = 2.0
"""A neighbouring machine answers within a millisecond; a lost packet is sent again after a second."""
CHUNK_BYTES = 256 * 1024
"""How much of a body is sent at a time: other tasks run in between."""
MAX_REFUSAL_BYTES = 16 * 1024
"""A problem document has a few hundred bytes."""
KEEP_ALIVE_S = 4.0
"""How long an unused connection stays open. A server closes it later (after 65 s), so a delta is
never sent into a closing connection."""
CONNECTIONS = 64
"""Further requests wait for their turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerTimeouts:
    """How long a whole call may take, in seconds."""

    offer_s: float = 14.0
    """The donor runs on while it sends a first copy. Enough for 100 MB at 100 Mbit/s, and for the stream's
    turn, which is at most 4 s later."""
    complete_s: float = 2.0
    """The stream stands still. A replay takes about as long."""
    fetch_s: float = 0.5
    """The stream stands still, and the former owner may be dead."""


UNREADABLE = 422
"""The status with which a member rejects a message or a body itself, whatever its own situation."""


class _NotAMember(Exception):
    """A member does not give such an answer."""


FAULTS = (
    httpx.HTTPError,
    httpx.StreamError,
    httpx.InvalidURL,
    httpx.CookieConflict,
    OSError,  # TimeoutError is one
    UnicodeError,  # an impossible host name
    ExceptionGroup,  # of attempts to connect, by anyio: an impossible port
    Unauthorized,
    BundleRejected,
    _NotAMember,
)
"""Everything that may go wrong in a call, except a refusal."""


class HttpPeers:
    """A `Peers`; an async context manager that closes its connections."""

    def __init__(
        self,
        here: Here,
        secrets: Secrets,
        wall_ms: Callable[[], int],
        *,
        max_body_bytes: int,
        timeouts: PeerTimeouts | None = None,
        tls: TlsFiles | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._here = here
        self._secrets = secrets
        self._wall_ms = wall_ms
        self._max_body_bytes = max_body_bytes
        self._timeouts = timeouts or PeerTimeouts()
        self._client = httpx.AsyncClient(
            verify=True if tls is None else client_context(tls),
            transport=transport,
            # `asyncio.timeout` bounds the whole call: httpx's time-outs start anew with every byte
            timeout=httpx.Timeout(None, connect=CONNECT_S),
            limits=httpx.Limits(
                max_connections=CONNECTIONS,
                max_keepalive_connections=CONNECTIONS,
                keepalive_expiry=KEEP_ALIVE_S,
            ),
            follow_redirects=False,
            # the environment's proxies are for the outside world, not for members
            trust_env=False,
        )

    def __repr__(self) -> str:
        return f"<HttpPeers of {self._here.member}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def offer(self, address: str, offer: Offer, body: bytes) -> None:
        """Sends the first copy of a stream's open sessions; the recipient holds it."""
        await self._send(address, offer, body, self._timeouts.offer_s)

    async def complete(self, address: str, completion: Completion, body: bytes) -> None:
        """Sends the delta on a first copy; the recipient then expects the release."""
        await self._send(address, completion, body, self._timeouts.complete_s)

    async def fetch(self, address: str, request: BundleRequest) -> bytes:
        """Asks a former owner for its frozen bundle."""
        encoding = "identity" if is_near(address) else ZSTD
        return await self._call(
            address,
            self._seal(request, b"", None),
            b"",
            self._timeouts.fetch_s,
            {"Accept-Encoding": encoding},
        )

    async def _send(self, address: str, message: Offer | Completion, body: bytes, within_s: float) -> None:
        # measured: on loopback 20 MB take 40 ms as they are, and compressing alone takes 60
        packed = None if is_near(address) else await asyncio.to_thread(compress, body)
        envelope = self._seal(message, body, packed)
        sent = body if packed is None else packed
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(len(sent))}
        await self._call(address, envelope, sent, within_s, headers)

    def _seal(self, message: Message, body: bytes, packed: bytes | None) -> Envelope:
        return envelope_for(
            message,
            body,
            packed,
            namespace=self._here.namespace,
            at_ms=self._wall_ms(),
            nonce=new_nonce(),
        )

    async def _call(
        self, address: str, envelope: Envelope, body: bytes, within_s: float, headers: dict[str, str]
    ) -> bytes:
        try:
            async with (
                asyncio.timeout(within_s),
                self._client.stream(
                    envelope.method,
                    f"{address}{envelope.target}",
                    headers=headers | sealed_headers(self._secrets, envelope),
                    content=_chunks(body) if envelope.method != "GET" else None,
                ) as response,
            ):
                return await self._answer(response, envelope)
        except FAULTS as error:
            raise PeerUnavailable(f"{address} does not answer: {_reason(error, within_s)}") from error

    async def _answer(self, response: httpx.Response, sent: Envelope) -> bytes:
        """The body of a member's answer. Raises HandoverRefused, and any of FAULTS."""
        if 400 <= response.status_code < 500:
            refused = HandoverUnreadable if response.status_code == UNREADABLE else HandoverRefused
            raise refused(_refusal(response, await _read(response, MAX_REFUSAL_BYTES)))
        if response.status_code != (200 if sent.method == "GET" else 204):
            raise _NotAMember(f"status {response.status_code}")
        if sent.method == "GET":
            return await self._bundle(response, sent)
        return await _read(response, 0)

    async def _bundle(self, response: httpx.Response, sent: Envelope) -> bytes:
        answer = open_envelope(
            self._secrets, self._here, "200", sent.target, response.headers, now_ms=self._wall_ms()
        )
        if (answer.sender, answer.nonce) != (sent.recipient, sent.nonce):
            raise _NotAMember("not the answer to this request")
        return await SealedBody(answer, self._max_body_bytes).read(response.aiter_raw())


def is_near(address: str) -> bool:
    """Whether this base URL is on this machine, where compression only costs time."""
    try:
        return is_loopback(httpx.URL(address).host)
    except httpx.InvalidURL:
        return False


async def _chunks(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), CHUNK_BYTES):
        yield body[start : start + CHUNK_BYTES]


async def _read(response: httpx.Response, limit: int) -> bytes:
    """The body as it came, not decoded; at most `limit` bytes."""
    chunks: list[bytes] = []
    size = 0
    async for chunk in response.aiter_raw():
        size += len(chunk)
        if size > limit:
            raise _NotAMember(f"status {response.status_code} and more than {limit} bytes")
        chunks.append(chunk)
    return b"".join(chunks)


class _Problem(msgspec.Struct):
    detail: str


def _refusal(response: httpx.Response, body: bytes) -> str:
    if response.headers.get("content-type", "").partition(";")[0] != PROBLEM:
        raise _NotAMember(f"status {response.status_code} without a reason")
    try:
        return msgspec.json.decode(body, type=_Problem).detail
    except msgspec.DecodeError as error:
        raise _NotAMember(f"status {response.status_code} with an unreadable reason: {error}") from None


def _reason(error: Exception, within_s: float) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {within_s:g} s"
    closed = CLOSED if isinstance(error, httpx.NetworkError) else repr(error)
    return tls_fault(error) or str(error) or closed
