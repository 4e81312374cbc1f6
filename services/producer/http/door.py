"""The door: `POST /fragments`, a raw ASGI callable in front of the FastAPI app.

Reads the body within its bounds, lets core/ingest.py decide, hands the accepted to the sink, and answers
once Kafka acknowledged. It stands before FastAPI because a route there costs three times as much
per request (25 k against 12 k requests/s on one core, with the parse alone 44 k).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import perf_counter

import msgspec
from fastapi import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from services.producer.core.form import Coding, Form, UnsupportedType, wrapping_for
from services.producer.core.ingest import (
    Ingested,
    Limits,
    Rejected,
    RequestTooLarge,
    RequestUnreadable,
    ingest,
)
from services.producer.http.body import Gone, decode_body, read_body
from services.producer.http.gate import FRAGMENTS, REFUSALS, Gate, refusal
from services.producer.http.limits import Inflight, InflightShare, Overloaded
from services.producer.http.metrics import ProducerMetrics
from services.producer.http.origins import Pairs
from services.producer.ports import FragmentSink, Rejects
from shared.errors import BatonError, Unavailable, ZooKeeperUnavailable
from shared.model.rejects import UNREADABLE
from shared.model.routing import StreamTable
from shared.service.http import RETRY_AFTER_S, kind_for, problem, problem_for

PATH = FRAGMENTS
_RETRY = {"Retry-After": str(RETRY_AFTER_S)}
logger = logging.getLogger(__name__)


class Leaving(Unavailable):
    """The producer is about to stop; send it to another one."""


STATUS: tuple[tuple[type[BatonError], int], ...] = (
    (RequestUnreadable, 400),
    (RequestTooLarge, 413),
    (UnsupportedType, 415),
    (Overloaded, 429),
)
"""Refusals that only this door knows; all others are in shared/service/http.py."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a 200."""

    accepted: int
    rejected: list[Rejected]


class Door:
    """`POST /fragments`; everything else goes on to `app`."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        gate: Gate,
        sink: FragmentSink,
        rejects: Rejects,
        table: Callable[[], StreamTable | None],
        limits: Limits,
        max_inflight_bytes: int,
        metrics: ProducerMetrics,
    ) -> None:
        self._app = app
        self._gate = gate
        self._sink = sink
        self._rejects = rejects
        self._table = table
        self._limits = limits
        self._inflight = Inflight(max_inflight_bytes)
        self._metrics = metrics
        self._is_leaving = False
        metrics.inflight_bytes = lambda: self._inflight.bytes
        metrics.rejects = rejects.counts

    def __repr__(self) -> str:
        return f"<Door with {self._inflight.bytes} bytes in flight{', leaving' * self._is_leaving}>"

    @property
    def inflight_bytes(self) -> int:
        """Bytes of requests that are being read or wait for Kafka."""
        return self._inflight.bytes

    def headers(self, scope: Scope) -> Pairs:
        """What answers to this request carry for the page that it is from."""
        return self._gate.headers(scope) if scope["path"] == PATH else ()

    def complaint(self) -> str:
        """Why no fragments are taken; empty when they are."""
        return "the producer is stopping" if self._is_leaving else ""

    def leave(self) -> None:
        """From now on refuses fragments; what is in flight goes on."""
        self._is_leaving = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != PATH or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        try:
            answer = await self.answer(scope, receive)
        except Gone:
            return
        if isinstance(answer, Response):
            self._metrics.requests[answer.status_code] += 1
            answer.raw_headers += self._gate.headers(scope)
            await answer(scope, receive, send)
            return
        self._metrics.requests[200] += 1
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
        headers += self._gate.headers(scope)
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    async def answer(self, scope: Scope, receive: Receive) -> Response | bytes:
        """The body of a 200, or a problem document. Raises Gone when the client is."""
        hold = InflightShare(self._inflight, self._limits.max_request_bytes)
        try:
            if self._is_leaving:
                raise Leaving
            self._gate.check(scope)
            types, encodings, length = _headers(scope["headers"])
            wrapping = wrapping_for(types, encodings)
            hold.expect(length)
            chunks = await read_body(receive, hold)
            if wrapping.coding is not Coding.IDENTITY:
                chunks = decode_body(chunks, wrapping.coding, hold)
            return await self._take(chunks, wrapping.form)
        except BatonError as error:
            self._metrics.refused[kind_for(error)] += 1
            return _refusal(error)
        except Gone:
            raise
        except Exception:
            logger.exception("fragments failed")
            return problem(500, "internal-server-error", "an error of ours; it has been logged")
        finally:
            hold.release()

    async def _take(self, chunks: list[bytes], form: Form) -> Response | bytes:
        table = self._table()
        if table is None:
            raise ZooKeeperUnavailable("there is no stream table yet")
        body = b"".join(chunks)
        try:
            ingested = ingest(body, form, table, self._limits)
        except RequestUnreadable as error:
            self._rejects.put([Rejected(index=0, reason=UNREADABLE, detail=error.detail)], [body])
            raise
        # only the batches hold the fragments from here on: a stalled Kafka must not keep three copies
        del body
        chunks.clear()
        rejected, refused = ingested.rejected, ingested.refused
        count, size = ingested.count, ingested.bytes
        if rejected:
            self._metrics.rejected.update(item.reason for item in rejected)
            if not count:
                self._rejects.put(rejected, refused)
                return _none_acceptable(ingested)
        if count:
            began_s = perf_counter()
            try:
                kept = self._sink.send(ingested.accepted)
                del ingested
                unstored = await kept
            except Unavailable:
                self._metrics.unstored += count
                raise
            if rejected:  # not sooner: whoever has to send all again is refused again
                self._rejects.put(rejected, refused)
            self._metrics.stored += count - len(unstored)
            if unstored:
                self._metrics.unstored += len(unstored)
                return _partly_stored(count, unstored, rejected)
            self._metrics.acknowledged(perf_counter() - began_s)
            self._metrics.stored_bytes += size
        return msgspec.json.encode(Answer(accepted=count, rejected=rejected))


def _headers(headers: list[tuple[bytes, bytes]]) -> tuple[tuple[bytes, ...], tuple[bytes, ...], int]:
    types: tuple[bytes, ...] = ()
    encodings: tuple[bytes, ...] = ()
    length = 0
    for name, value in headers:
        if name == b"content-type":
            types += (value,)
        elif name == b"content-encoding":
            encodings += (value,)
        elif name == b"content-length" and value.isdigit():
            length = int(value)
    return types, encodings, length


def _refusal(error: BatonError) -> Response:
    if isinstance(error, REFUSALS):
        return refusal(error)
    if isinstance(error, UnsupportedType):
        return _problem(error, 415, headers=dict([error.accept]))
    status = next((status for kind, status in STATUS if isinstance(error, kind)), None)
    if status is None:
        return problem_for(error)
    return _problem(error, status, headers=_RETRY if status == 429 else None)


def _problem(error: BatonError, status: int, *, headers: dict[str, str] | None = None) -> Response:
    return problem(status, kind_for(error), error.detail, headers=headers)


def _none_acceptable(ingested: Ingested) -> Response:
    count = len(ingested.rejected)
    detail = (
        "the fragment is not acceptable" if count == 1 else f"none of the {count} fragments is acceptable"
    )
    return problem(422, "fragments-rejected", detail, accepted=0, rejected=ingested.rejected)


def _partly_stored(count: int, unstored: list[int], rejected: list[Rejected]) -> Response:
    return problem(
        503,
        "kafka-unavailable",
        f"Kafka acknowledged only {count - len(unstored)} of {count} fragments in time",
        headers=_RETRY,
        accepted=count - len(unstored),
        unstored=unstored,
        rejected=rejected,
    )
