"""The door: `POST /fragments`, a plain ASGI callable in front of the FastAPI app.

It reads the body within its limits, asks core/ingest.py, passes the accepted fragments to the sink, and
answers after Kafka acknowledged them. It stands in front of FastAPI because a route there costs three times
as much: 12,000 requests/s on one core against 25,000 here (parsing alone: 44,000).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from time import perf_counter

import msgspec
from fastapi import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.producer.core.form import Coding, Form, wrapping_for
from services.producer.core.ingest import Limits, Rejected, ingest
from services.producer.core.items import RequestUnreadable
from services.producer.http.body import ClientGone, decode_body, read_body
from services.producer.http.gate import FRAGMENTS, Gate
from services.producer.http.grants import Scope as KeyScope
from services.producer.http.keys import WriteKey
from services.producer.http.limits import Inflight, InflightShare
from services.producer.http.metrics import ProducerMetrics
from services.producer.http.origins import Pairs
from services.producer.http.refusals import all_rejected, partly_stored, refusal
from services.producer.ports import FragmentSink, Rejects
from shared.errors import BatonError, Unavailable, ZooKeeperUnavailable
from shared.model.rejects import UNREADABLE
from shared.model.routing import StreamTable
from shared.service.http import kind_for, problem

logger = logging.getLogger(__name__)


class Leaving(Unavailable):
    """The producer is stopping; send this to another one."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a 200."""

    accepted: int
    rejected: list[Rejected]


class Door:
    """Answers `POST /fragments`; everything else goes to `app`."""

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
        self.inflight = Inflight(max_inflight_bytes)
        self._metrics = metrics
        self._is_leaving = False
        metrics.inflight_bytes = lambda: self.inflight.bytes
        metrics.rejects = rejects.counts

    def __repr__(self) -> str:
        return f"<Door with {self.inflight.bytes} bytes in flight{', leaving' * self._is_leaving}>"

    @property
    def inflight_bytes(self) -> int:
        """Bytes of requests that are being read or wait for Kafka."""
        return self.inflight.bytes

    def headers(self, scope: Scope) -> Pairs:
        """The headers that answers to this request carry because of its origin."""
        return self._gate.headers(scope) if scope["path"] == FRAGMENTS else ()

    def complaint(self) -> str:
        """Why the door rejects fragments; empty if it accepts them."""
        return "the producer is stopping" if self._is_leaving else ""

    def leave(self) -> None:
        """Rejects new requests from now on; requests in flight go on."""
        self._is_leaving = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != FRAGMENTS or scope["method"] != "POST":
            await self._pass_on(scope, receive, send)
            return
        try:
            answer = await self._answer(scope, receive)
        except ClientGone:
            return
        if isinstance(answer, Response):
            self._metrics.requests[answer.status_code] += 1
            answer.raw_headers += self._gate.headers(scope)
            await answer(scope, receive, send)
            return
        # the common case without the cost of a Response object
        self._metrics.requests[200] += 1
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
        headers += self._gate.headers(scope)
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_answered = False

        async def send_and_note(message: Message) -> None:
            nonlocal has_answered
            has_answered = True
            await send(message)

        try:
            await self._app(scope, receive, send_and_note)
        except asyncio.CancelledError:
            if has_answered or not self._is_leaving:
                raise
            await self._refusal(Leaving())(scope, receive, send)

    def _refusal(self, error: BatonError) -> Response:
        self._metrics.refused[kind_for(error)] += 1
        return refusal(error)

    async def _answer(self, scope: Scope, receive: Receive) -> Response | bytes:
        """The body of a 200, or a problem document. Raises ClientGone."""
        share = InflightShare(self.inflight, self._limits.max_request_bytes)
        try:
            if self._is_leaving:
                raise Leaving
            # everything that the headers decide comes before the body is read
            key = self._gate.check(scope, KeyScope.WRITE)
            types, encodings, length = _headers(scope["headers"])
            wrapping = wrapping_for(types, encodings)
            share.check_announced(length)  # before the body is read, so that an upload is not wasted
            chunks = await read_body(receive, share)
            if wrapping.coding is not Coding.IDENTITY:
                chunks = decode_body(chunks, wrapping.coding, share)
            return await self._store(chunks, wrapping.form, key)
        except BatonError as error:
            return self._refusal(error)
        except asyncio.CancelledError:
            if not self._is_leaving:
                raise
            # the server cancels what outlasts its stop; Kafka may have stored it, so the client retries
            return self._refusal(Leaving())
        except ClientGone:
            raise
        except Exception:
            logger.exception("request failed")
            return problem(500, "internal-server-error", "an internal error; it has been logged")
        finally:
            share.release()

    async def _store(self, chunks: list[bytes], form: Form, key: WriteKey | None) -> Response | bytes:
        table = self._table()
        if table is None:
            raise ZooKeeperUnavailable("there is no stream table yet")
        body = b"".join(chunks)
        writer = "" if key is None else key.grant.name
        try:
            ingested = ingest(body, form, table, self._limits)
        except RequestUnreadable as error:
            self._rejects.put([Rejected(index=0, reason=UNREADABLE, detail=error.detail)], [body], writer)
            raise
        if key is not None:
            key.count(ingested.total)
        # from here on only the batches hold the fragments: a stalled Kafka must not keep three copies
        del body
        chunks.clear()
        rejected, rejected_values = ingested.rejected, ingested.rejected_values
        count, size = ingested.count, ingested.bytes
        if rejected:
            self._metrics.rejected.update(item.reason for item in rejected)
            if not count:
                self._rejects.put(rejected, rejected_values, writer)
                return all_rejected(rejected)
        if count:
            started_s = perf_counter()
            try:
                sending = self._sink.send(ingested.accepted)
                # while Kafka is slow this coroutine waits, and must not hold the fragments a second time
                del ingested
                unstored = await sending
            except (Unavailable, asyncio.CancelledError):
                self._metrics.unstored += count
                raise
            if rejected:  # not earlier: after a failure the client sends everything again
                self._rejects.put(rejected, rejected_values, writer)
            self._metrics.stored += count - len(unstored)
            if unstored:
                self._metrics.unstored += len(unstored)
                return partly_stored(count, unstored, rejected)
            self._metrics.acknowledged(perf_counter() - started_s)
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
