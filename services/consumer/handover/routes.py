"""The routes by which other members hand over streams, and by which control drains this member.

A request is refused at the first of these: the member has not joined; the signature is missing, wrong or old;
the request line is not that of the signed message; the body is too long. Only then is the body read, within
bounds of size and time, and decoded. Whether the message fits is decided by the hint store (`hints.py`), in
one synchronous call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
from fastapi import FastAPI, Request, Response
from starlette.requests import ClientDisconnect

from services.consumer.core.handover.rules import BundleRequest, Completion, Offer
from services.consumer.handover.hints import HintStore
from services.consumer.handover.messages import (
    HANDOVER,
    LENGTH,
    ZSTD,
    M,
    compress,
    decompress,
    line_for,
    parse_header,
    parse_length,
    sender_of,
)
from services.consumer.stream.slices import in_slices
from shared.errors import BundleRejected, Conflict, HandoverRefused, InvalidInput, Unauthorized, Unavailable
from shared.service.signing import Signed, check_signed, digest_of, signed_headers

BODY_S = 15.0
"""How long a body may take to arrive: longer than a donor waits for the answer."""
BODIES = 2
"""How many bodies of the largest size may arrive at once, or as many bytes of smaller ones."""
MAX_DRAIN_BYTES = 4 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Reception:
    """What the routes work on, once the member has joined; `drain(why)` starts to drain it."""

    member: str
    hint_store: HintStore
    secret: bytes = field(repr=False)
    drain: Callable[[str], None]
    wall_ms: Callable[[], int]


class DrainRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The body of `POST /drain`; it may also be empty."""

    why: str = ""


class ArrivingBodies:
    """Counts the bytes of all bodies that are arriving, to bound them together."""

    def __init__(self) -> None:
        self.bytes = 0

    def __repr__(self) -> str:
        return f"<ArrivingBodies: {self.bytes} bytes>"

    async def read(self, request: Request, limit: int, limit_of_all: int) -> bytes:
        """The body as it was sent. Raises BundleRejected, HandoverRefused, Unavailable, ClientDisconnect."""
        chunks: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(BODY_S):
                async for chunk in request.stream():
                    size += len(chunk)
                    self.bytes += len(chunk)
                    if size > limit:
                        raise _too_large(limit)
                    if self.bytes > limit_of_all:
                        raise Unavailable("too many bodies are arriving at once")
                    chunks.append(chunk)
            return b"".join(chunks)
        except TimeoutError:
            raise HandoverRefused(f"the body did not arrive within {BODY_S:g} s") from None
        finally:
            self.bytes -= size


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
        offer = _message_of(request, at, Offer)
        await in_slices(at.hint_store.receiving_copy(offer, await _body(request, at, arriving)))
        return Response(status_code=204)

    @app.post(
        "/handover/{group}/{stream}/commit", tags=["handover"], status_code=204, summary="Receive a delta"
    )
    async def post_delta(request: Request) -> Response:
        at = here()
        completion = _message_of(request, at, Completion)
        at.hint_store.receive_delta(completion, await _body(request, at, arriving))
        return Response(status_code=204)

    @app.get("/handover/{group}/{stream}", tags=["handover"], summary="Give a frozen bundle")
    async def get_bundle(request: Request) -> Response:
        at = here()
        bundle_request = _message_of(request, at, BundleRequest)
        return await _bundle_response(request, at, bundle_request)

    async def gone(_: Request, __: Exception) -> Response:
        # the client that would read this answer is gone
        return Response(status_code=400)

    app.add_exception_handler(ClientDisconnect, gone)
    _install_drain(app, reception, arriving)


def _install_drain(app: FastAPI, reception: Callable[[], Reception | None], arriving: ArrivingBodies) -> None:
    @app.post("/drain", tags=["member"], status_code=202, summary="Hand over all streams, then leave")
    async def post_drain(request: Request) -> Response:
        at = reception()
        if at is None:
            raise Conflict("this member has not joined its group yet: it has nothing to hand over")
        signed = _signed(request, at)
        body = await arriving.read(request, MAX_DRAIN_BYTES, BODIES * at.hint_store.limits.max_body_bytes)
        if digest_of(body) != signed.digest:
            raise Unauthorized("the body is not the one that was signed")
        try:
            why = msgspec.json.decode(body, type=DrainRequest).why if body else ""
        except msgspec.DecodeError as error:
            raise InvalidInput(f"the body is not a drain request: {error}") from None
        at.drain(why or f"requested by {signed.member or 'an operator'}")
        return Response(b'{"state":"draining"}', 202, media_type="application/json")


def _signed(request: Request, at: Reception) -> Signed:
    return check_signed(
        at.secret, request.method, request.scope["path"], request.headers, now_ms=at.wall_ms()
    )


def _message_of(request: Request, at: Reception, kind: type[M]) -> M:
    """The signed message of a request that fits it. Raises Unauthorized, BundleRejected."""
    signed = _signed(request, at)
    header = request.headers.get(HANDOVER, "")
    if digest_of(header.encode()) != signed.digest:
        raise Unauthorized(f"the header {HANDOVER} is not the one that was signed")
    message = parse_header(header, kind)
    line = line_for(message)
    target = f"{request.scope['path']}?{request.scope['query_string'].decode('latin-1')}"
    if (line.target, line.epoch, line.seq, sender_of(message)) != (
        target,
        signed.epoch,
        signed.seq,
        signed.member,
    ):
        raise Unauthorized(
            f"signed was {line.method} {line.target} of {sender_of(message)}, not this request"
        )
    return message


async def _body(request: Request, at: Reception, arriving: ArrivingBodies) -> bytes:
    """The decoded body, bounded by its announced length and again while it arrives."""
    limit = at.hint_store.limits.max_body_bytes
    encoding = request.headers.get("content-encoding", "")
    if encoding not in ("", ZSTD):
        raise BundleRejected(f"the encoding {encoding!r} is not known")
    length = parse_length(request.headers.get(LENGTH, "")) if encoding else 0
    if max(parse_length(request.headers.get("content-length", "0")), length) > limit:
        raise _too_large(limit)
    body = await arriving.read(request, limit, BODIES * limit)
    return await asyncio.to_thread(decompress, body, length) if encoding else body


def _too_large(limit: int) -> BundleRejected:
    return BundleRejected(f"a body may have at most {limit} bytes")


async def _bundle_response(request: Request, at: Reception, bundle_request: BundleRequest) -> Response:
    """The bundle, signed like a request whose method is the status; compressed if the client accepts that."""
    bundle, line = at.hint_store.give(bundle_request), line_for(bundle_request)
    digest = await asyncio.to_thread(digest_of, bundle)
    headers = signed_headers(
        at.secret,
        at.member,
        "200",
        line.path,
        epoch=line.epoch,
        seq=line.seq,
        digest=digest,
        at_ms=at.wall_ms(),
    )
    if request.headers.get("accept-encoding") == ZSTD:
        packed = await asyncio.to_thread(compress, bundle)
        if packed is not None:
            headers |= {"Content-Encoding": ZSTD, LENGTH: str(len(bundle))}
            bundle = packed
    return Response(bundle, headers=headers, media_type="application/octet-stream")
