"""The door: `POST /fragments`, a raw ASGI callable in front of the FastAPI app.

Reads the body within its bounds, lets core/ingest.py decide, hands the accepted to the sink, and answers
once Kafka acknowledged. It stands before FastAPI because a route there costs three times as much
per request (25 k against 12 k requests/s on one core, with the parse alone 44 k).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import msgspec
from fastapi import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from services.producer.core.ingest import (
    Form,
    Ingested,
    Limits,
    Rejected,
    RequestTooLarge,
    RequestUnreadable,
    UnsupportedType,
    form_for,
    ingest,
)
from services.producer.metrics import ProducerMetrics
from services.producer.ports import FragmentSink
from shared.errors import BatonError, Unavailable, ZooKeeperUnavailable
from shared.http import RETRY_AFTER_S, kind_for, problem, problem_for
from shared.routing import StreamTable

PATH = "/fragments"
STATUS: tuple[tuple[type[BatonError], int], ...] = (
    (RequestUnreadable, 400),
    (RequestTooLarge, 413),
    (UnsupportedType, 415),
)
"""Refusals that only this door knows; all others are in shared/http.py."""
_RETRY = {"Retry-After": str(RETRY_AFTER_S)}
_log = logging.getLogger(__name__)


class Overloaded(Unavailable):
    """Too much is waiting for Kafka already."""


class Leaving(Unavailable):
    """The producer is about to stop; send it to another one."""


class SlowRequest(BatonError):
    """The body did not arrive in time."""


class Gone(Exception):
    """The client went away before its body was complete; nobody is there to be answered."""


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
        sink: FragmentSink,
        table: Callable[[], StreamTable | None],
        limits: Limits,
        max_inflight_bytes: int,
        read_timeout_s: float,
        metrics: ProducerMetrics,
    ) -> None:
        self._app = app
        self._sink = sink
        self._table = table
        self._limits = limits
        self._max_inflight_bytes = max_inflight_bytes
        self._read_timeout_s = read_timeout_s
        self._metrics = metrics
        self._inflight_bytes = 0
        self._is_leaving = False
        metrics.inflight.set_function(lambda: self._inflight_bytes)

    def __repr__(self) -> str:
        return f"<Door with {self._inflight_bytes} bytes in flight{', leaving' * self._is_leaving}>"

    @property
    def inflight_bytes(self) -> int:
        """Bytes of requests that are being read or wait for Kafka."""
        return self._inflight_bytes

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
            self._metrics.answered(answer.status_code)
            await answer(scope, receive, send)
            return
        self._metrics.answered(200)
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    async def answer(self, scope: Scope, receive: Receive) -> Response | bytes:
        """The body of a 200, or a problem document. Raises Gone when the client is."""
        held = 0
        try:
            if self._is_leaving:
                raise Leaving
            types, encodings, length = _headers(scope["headers"])
            form = form_for(types, encodings)
            if length > self._limits.max_request_bytes:
                raise _too_large(self._limits)
            chunks: list[bytes] = []
            async with asyncio.timeout(self._read_timeout_s):
                more = True
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Gone
                    chunk: bytes = message.get("body", b"")
                    more = message.get("more_body", False)
                    held += len(chunk)
                    self._inflight_bytes += len(chunk)
                    if held > self._limits.max_request_bytes:
                        raise _too_large(self._limits)
                    if self._inflight_bytes > self._max_inflight_bytes:
                        raise Overloaded
                    chunks.append(chunk)
            return await self._take(chunks, form)
        except TimeoutError:
            return _problem(SlowRequest(), 408, headers={"Connection": "close"})
        except UnsupportedType as error:
            return _problem(error, 415, headers=dict([error.accept]))
        except BatonError as error:
            status = next((status for kind, status in STATUS if isinstance(error, kind)), None)
            return problem_for(error) if status is None else _problem(error, status)
        except Gone:
            raise
        except Exception:
            _log.exception("fragments failed")
            return problem(500, "internal-server-error", "an error of ours; it has been logged")
        finally:
            self._inflight_bytes -= held

    async def _take(self, chunks: list[bytes], form: Form) -> Response | bytes:
        table = self._table()
        if table is None:
            raise ZooKeeperUnavailable("there is no stream table yet")
        ingested = ingest(b"".join(chunks), form, table, self._limits)
        # only the batches hold the fragments from here on: a stalled Kafka must not keep three copies
        chunks.clear()
        rejected, count, size = ingested.rejected, ingested.count, ingested.bytes
        if rejected:
            self._metrics.refused(ingested)
            if not count:
                return _none_acceptable(ingested)
        if count:
            kept = self._sink.send(ingested.accepted)
            del ingested
            try:
                unstored = await kept
            except Unavailable:
                self._metrics.unstored.inc(count)
                raise
            self._metrics.stored.inc(count - len(unstored))
            if unstored:
                self._metrics.unstored.inc(len(unstored))
                return _partly_stored(count, unstored, rejected)
            self._metrics.stored_bytes.inc(size)
        return msgspec.json.encode(Answer(accepted=count, rejected=rejected))


def _headers(headers: list[tuple[bytes, bytes]]) -> tuple[list[bytes], list[bytes], int]:
    types: list[bytes] = []
    encodings: list[bytes] = []
    length = 0
    for name, value in headers:
        if name == b"content-type":
            types.append(value)
        elif name == b"content-encoding":
            encodings.append(value)
        elif name == b"content-length" and value.isdigit():
            length = int(value)
    return types, encodings, length


def _too_large(limits: Limits) -> RequestTooLarge:
    return RequestTooLarge(f"a request may have at most {limits.max_request_bytes} bytes")


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
