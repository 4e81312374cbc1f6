"""Members' HTTP faces on real sockets over real hint stores, and the requests of a handover made by hand."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace

import httpx
import msgspec
from fastapi import FastAPI
from starlette.types import Receive, Scope, Send

from services.consumer.adapters.http_peers import HttpPeers, PeerTimeouts
from services.consumer.app import create_app
from services.consumer.handover.messages import Message, envelope_for
from services.consumer.handover.nonces import Nonces
from services.consumer.handover.routes import Reception
from services.consumer.member.metrics import ConsumerMetrics
from shared.errors import Conflict
from shared.model.secrets import Secrets
from shared.server.face import Face as AppFace
from shared.server.listener import http_server
from shared.service.signing import ACCEPTED_MS, Envelope, Here, new_nonce, sealed_headers
from shared.service.tls import TlsFiles
from tests.peers_contract import MAX_BODY_BYTES, End, Pair, new_end
from tests.servers import free_port

SECRETS = Secrets(signing=b"of these two members")
PATIENT = PeerTimeouts(offer_s=20, complete_s=20, fetch_s=20)
"""For machines that are busy with other tests."""


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


def here_of(member: str) -> Here:
    """A member of the default group."""
    return Here(member=member, namespace="", group="default")


@dataclass(slots=True, kw_only=True)
class Face:
    """One member and where it answers; `connections` are the clients' ports, one for each request."""

    end: End
    port: int
    member: str
    joined: bool = True
    tls: TlsFiles = field(default_factory=TlsFiles)
    drained: list[str] = field(default_factory=list)
    undrained: list[str] = field(default_factory=list)
    connections: list[int] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"{'https' if self.tls.is_serving else 'http'}://127.0.0.1:{self.port}"

    def drain(self, why: str) -> None:
        """Notes that the member was told to drain."""
        self.drained.append(why)

    def undrain(self, why: str) -> None:
        """Notes that it was told to undrain, which it can only once it drains."""
        if not self.drained:
            raise Conflict(f"{self.member} is not draining")
        self.undrained.append(why)

    @property
    def app(self) -> FastAPI:
        """As `services/consumer/__main__.py` makes it."""
        reception = Reception(
            here=here_of(self.member),
            hint_store=self.end.hint_store,
            secrets=SECRETS,
            nonces=Nonces(wall_ms() - ACCEPTED_MS),
            departure=self,
            wall_ms=wall_ms,
        )
        return create_app(
            status=dict,
            plan=dict,
            complaints=list,
            metrics=ConsumerMetrics([]),
            reception=lambda: reception if self.joined else None,
            hosts=["b", "elsewhere.example"],
        )


@contextlib.asynccontextmanager
async def serving(
    member: str, max_body_bytes: int = MAX_BODY_BYTES, tls: TlsFiles | None = None
) -> AsyncIterator[Face]:
    """A member that answers."""
    end, port = new_end(member, max_body_bytes), free_port()
    face = Face(end=end, port=port, member=member, tls=tls or TlsFiles())
    app = face.app

    async def watched(scope: Scope, receive: Receive, send: Send) -> None:
        face.connections.append(scope["client"][1])
        await app(scope, receive, send)

    async with http_server(AppFace(watched), "127.0.0.1", face.port, tls=tls):
        yield face


class Elsewhere(httpx.AsyncHTTPTransport):
    """Connects every host to this machine, so that addresses need not be loopback addresses.

    It loads no certificates: that takes longer than most tests.
    """

    def __init__(self) -> None:
        super().__init__(verify=False)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        request.url = request.url.copy_with(host="127.0.0.1")
        return await super().handle_async_request(request)


@contextlib.asynccontextmanager
async def pair_over_http(host: str = "127.0.0.1") -> AsyncIterator[Pair]:
    """Donor `a` and recipient `b`; each calls the other at `host`."""
    async with serving("a") as a, serving("b") as b, peers_of("a") as to_b, peers_of("b") as to_a:
        ports = {"a": a.port, "b": b.port, "nobody": free_port()}
        yield Pair(
            donor=a.end,
            recipient=b.end,
            peers=to_b,
            back=to_a,
            address_of=lambda member: f"http://{host}:{ports[member]}",
        )


def peers_of(member: str, secrets: Secrets = SECRETS, timeouts: PeerTimeouts = PATIENT) -> HttpPeers:
    """The peers of a member."""
    return HttpPeers(
        here_of(member),
        secrets,
        wall_ms,
        max_body_bytes=MAX_BODY_BYTES,
        timeouts=timeouts,
        transport=Elsewhere(),
    )


def plain_client() -> httpx.AsyncClient:
    """A client that sends requests as they are."""
    return httpx.AsyncClient(transport=Elsewhere(), timeout=20)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A request that a test may change; without changes it is what `HttpPeers` sends."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes = b""

    def with_headers(self, **changes: str) -> Sent:
        """`accept_encoding="zstd"` sets `Accept-Encoding`; an empty value removes the header."""
        named = {name.replace("_", "-").title(): value for name, value in changes.items()}
        headers = {name: value for name, value in (self.headers | named).items() if value}
        return replace(self, headers=headers)

    async def to(self, face: Face) -> httpx.Response:
        """Sends it; the answer."""
        async with plain_client() as client:
            return await client.request(
                self.method, face.address + self.target, headers=self.headers, content=bytes(self.body)
            )


def sent(
    said: Message,
    body: bytes = b"",
    *,
    secrets: Secrets = SECRETS,
    late_ms: int = 0,
    packed: bytes | None = None,
    **changes: object,
) -> Sent:
    """The sealed request of a message; `packed`: how the body is sent; `changes`: of the signed envelope."""
    envelope = envelope_for(said, body, packed, namespace="", at_ms=wall_ms() - late_ms, nonce=new_nonce())
    envelope = msgspec.structs.replace(envelope, **changes)
    return sealed(envelope, body if packed is None else packed, secrets)


def sealed(envelope: Envelope, body: bytes, secrets: Secrets = SECRETS) -> Sent:
    """The request of an envelope."""
    headers = sealed_headers(secrets, envelope)
    return Sent(method=envelope.method, target=envelope.target, headers=headers, body=body)
