"""The routes by which other members hand over streams, and by which control drains or undrains this one.

A request is refused at the first of these: the member has not joined; the envelope is missing, forged, old,
or for another recipient or request; it was accepted before; its message is not that of the request line; the
body is too long. Only then is the body read, within bounds of size and time; it is decoded only if it is the
signed one. Whether the message fits is decided by the hint store (`hints.py`), in slices.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Protocol

import msgspec
from fastapi import FastAPI, Request, Response
from starlette.requests import ClientDisconnect

from services.consumer.core.handover.rules import BundleRequest, Completion, Offer
from services.consumer.handover.hints import HintStore
from services.consumer.handover.messages import ZSTD, compress, parse_message
from services.consumer.handover.nonces import Nonces
from services.consumer.handover.sealed_body import SealedBody
from services.consumer.stream.slices import in_slices
from shared.errors import Conflict, HandoverRefused, InvalidInput, Unavailable
from shared.model.secrets import Secrets
from shared.service.signing import Envelope, Here, digest_of, open_envelope, sealed_headers

BODY_S = 15.0
"""How long a body may take to arrive: longer than a donor waits for the answer."""
BODIES = 2
"""How many bodies of the largest size, decoded, may arrive at once, or as many bytes of smaller ones."""
MAX_DRAIN_BYTES = 4 * 1024


class Departing(Protocol):
    """Whether the member is to leave."""

    def drain(self, why: str) -> None:
        """Starts to drain it."""

    def undrain(self, why: str) -> None:
        """Makes it take streams again. Raises Conflict if it cannot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reception:
    """What the routes work on, once the member has joined."""

    here: Here
    hint_store: HintStore
    secrets: Secrets = field(repr=False)
    nonces: Nonces
    departure: Departing
    wall_ms: Callable[[], int]


class DrainRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The body of `POST /drain` and of `POST /undrain`; it may also be empty."""

    why: str = ""


class ArrivingBodies:
    """Counts all bodies that are being received, at their decoded sizes, to bound them together."""

    def __init__(self) -> None:
        self.bytes = 0

    def __repr__(self) -> str:
        return f"<ArrivingBodies: {self.bytes} bytes>"

    @contextlib.asynccontextmanager
    async def receive(
        self, request: Request, envelope: Envelope, limit: int, limit_of_all: int
    ) -> AsyncIterator[bytes]:
        """The decoded body, counted until it has been handled.

        Raises Unauthorized, BundleRejected, HandoverRefused, Unavailable, ClientDisconnect.
        """
        sealed = SealedBody(envelope, limit)
        # the whole signed size at once: a body that arrives slowly still gets all of it
        if self.bytes + sealed.bytes > limit_of_all:
            raise Unavailable("too many bodies are arriving at once")
        self.bytes += sealed.bytes
        try:
            try:
                async with asyncio.timeout(BODY_S):
                    body = await sealed.read(request.stream())
            except TimeoutError:
                raise HandoverRefused(f"the body did not arrive within {BODY_S:g} s") from None
            yield body
        finally:
            self.bytes -= sealed.bytes


def install_handovers(app: FastAPI, reception: Callable[[], Reception | None]) -> None:
    """`/handover/…` and `/drain`; `reception()` is None until the member has joined."""
    arriving = ArrivingBodies()

    def here() -> Reception:
        found = reception()
        if found is None:
            raise Unavailable("this member has not joined its group yet")
        return found

    @app.put("/handover/{group}/{stream}", tags=["handover"], status_code=204, summary="Receive a first copy")
    async def put_copy(request: Request) -> Response:
        at = here()
        envelope = _envelope_of(request, at)
        offer = parse_message(envelope, Offer)
        async with arriving.receive(request, envelope, *_limits(at)) as body:
            await in_slices(at.hint_store.receiving_copy(offer, body, _known_digest(envelope)))
        # the donor stops the stream when it has this answer
        await at.hint_store.arrivals.turn_of(offer)
        return Response(status_code=204)

    @app.post(
        "/handover/{group}/{stream}/commit", tags=["handover"], status_code=204, summary="Receive a delta"
    )
    async def post_delta(request: Request) -> Response:
        at = here()
        envelope = _envelope_of(request, at)
        completion = parse_message(envelope, Completion)
        async with arriving.receive(request, envelope, *_limits(at)) as body:
            await in_slices(at.hint_store.receiving_delta(completion, body, _known_digest(envelope)))
        return Response(status_code=204)

    @app.get("/handover/{group}/{stream}", tags=["handover"], summary="Give a frozen bundle")
    async def get_bundle(request: Request) -> Response:
        at = here()
        return await _bundle_response(request, at, _envelope_of(request, at))

    async def gone(_: Request, __: Exception) -> Response:
        # the client that would read this answer is gone
        return Response(status_code=400)

    app.add_exception_handler(ClientDisconnect, gone)
    _install_drain(app, reception, arriving)


def _install_drain(app: FastAPI, reception: Callable[[], Reception | None], arriving: ArrivingBodies) -> None:
    async def asked(request: Request) -> tuple[Reception, str]:
        at = reception()
        if at is None:
            raise Conflict("this member has not joined its group yet: it has nothing to hand over")
        envelope = _envelope_of(request, at)
        async with arriving.receive(request, envelope, MAX_DRAIN_BYTES, _limits(at)[1]) as body:
            try:
                why = msgspec.json.decode(body, type=DrainRequest).why if body else ""
            except msgspec.DecodeError as error:
                raise InvalidInput(f"the body is not a drain request: {error}") from None
        return at, why or f"requested by {envelope.sender or 'an operator'}"

    @app.post("/drain", tags=["member"], status_code=202, summary="Hand over all streams, then leave")
    async def post_drain(request: Request) -> Response:
        at, why = await asked(request)
        at.departure.drain(why)
        return Response(b'{"state":"draining"}', 202, media_type="application/json")

    @app.post("/undrain", tags=["member"], status_code=202, summary="Stop draining, and take streams again")
    async def post_undrain(request: Request) -> Response:
        at, why = await asked(request)
        at.departure.undrain(why)
        return Response(b'{"state":"active"}', 202, media_type="application/json")


def _envelope_of(request: Request, at: Reception) -> Envelope:
    """The envelope of a request, accepted once. Raises Unauthorized, Unavailable."""
    now_ms = at.wall_ms()
    envelope = open_envelope(
        at.secrets, at.here, request.method, _target_of(request), request.headers, now_ms=now_ms
    )
    at.nonces.accept(envelope, now_ms)
    return envelope


def _target_of(request: Request) -> str:
    path, query = request.scope["path"], request.scope["query_string"].decode("latin-1")
    return f"{path}?{query}" if query else f"{path}"


def _known_digest(envelope: Envelope) -> str | None:
    """The decoded body's digest, if the body arrived as it is: then it was checked on arrival."""
    return None if envelope.encoding else envelope.digest


def _limits(at: Reception) -> tuple[int, int]:
    """How large one body may be, and all that arrive at once."""
    limit = at.hint_store.limits.max_body_bytes
    return limit, BODIES * limit


async def _bundle_response(request: Request, at: Reception, asked: Envelope) -> Response:
    """The bundle, sealed like a request whose method is the status; compressed if the client accepts that."""
    bundle = await in_slices(at.hint_store.giving(parse_message(asked, BundleRequest)))
    packed = None
    if request.headers.get("accept-encoding") == ZSTD:
        packed = await asyncio.to_thread(compress, bundle)
    body = bundle if packed is None else packed
    answer = Envelope(
        sender=at.here.member,
        recipient=asked.sender,
        namespace=asked.namespace,
        group=asked.group,
        at_ms=at.wall_ms(),
        nonce=asked.nonce,
        method="200",
        target=asked.target,
        digest=await asyncio.to_thread(digest_of, body),
        length=len(body),
        encoding="" if packed is None else ZSTD,
        decoded_length=0 if packed is None else len(bundle),
    )
    # the bundle is a bytearray, and a view spares a copy of it
    return Response(
        memoryview(body), headers=sealed_headers(at.secrets, answer), media_type="application/octet-stream"
    )
