"""Uvicorn's HTTP protocol, with timeouts for headers, for bodies, and for clients that do not read answers.

Uvicorn itself waits without end for a client that has started to send, accepts headers of any size, answers
what it cannot parse ahead of requests that still run, and loses a body that follows an offer to upgrade.
Here a connection has a timer or two, and none while requests arrive whole; all of it costs 1–3 of 55 µs a
request. Wired by `__main__.py`; the door handles everything that parses (docs/adr/0021).
"""

from __future__ import annotations

import asyncio
from typing import Any

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from services.producer.http.bounds import Bounds
from services.producer.http.pipeline import (
    MAX_QUEUED,
    PipelinedHttpProtocol,
    TooManyQueued,
    disconnect,
)
from shared.service.http import problem

MAX_HEADER_BYTES = 32 * 1024
"""For a request line with its headers; browsers send all cookies of a site with a beacon."""

_Awaited = tuple[RequestResponseCycle | None, bool]
"""The latest request, and whether we wait for the next one's headers rather than the rest of its body."""
_UPGRADE = (b"upgrade", b"connection", b"http2-settings")


class _HeadersTooLarge(Exception):
    """Stops the parser in the middle of the headers."""


class BoundedHttpProtocol(PipelinedHttpProtocol):
    """One connection. `_barren` counts bytes in a row without a body or the end of a request among them."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        bounds: Bounds,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop, bounds=bounds)
        self._barren = 0
        self._declined = b""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_is_for: _Awaited = (None, True)
        self._write_timer: asyncio.TimerHandle | None = None
        self._end_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if not self._is_over:
            self._timer = self.loop.call_later(self._bounds.header_timeout_s, self._on_late)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_timer()
        self.resume_writing()
        if self._end_timer is not None:
            self._end_timer.cancel()

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """A client that has sent everything and closed its half is still answered."""
        cycle = self.cycle
        if self._is_over or cycle is None or cycle.more_body or cycle.response_complete:  # nothing to answer
            self._abort_later()
            return None
        cycle.keep_alive = False
        return True

    def data_received(self, data: bytes) -> None:
        if self._is_over:
            return
        self._unset_keepalive_if_required()
        self._barren += len(data)
        try:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as offer:
                self._decline(offer, data)
        except httptools.HttpParserError as error:
            self._reject_unreadable(error)
            return
        cycle = self.cycle
        if cycle is None or cycle.more_body or "method" not in self.scope:
            self._keep_waiting()
        elif self._timer is not None or cycle.response_complete:  # the request is complete
            self._stay_idle()

    def on_headers_complete(self) -> None:
        # _barren may include earlier requests of the same read, so count these headers exactly
        if self._barren > MAX_HEADER_BYTES and self._header_bytes() > MAX_HEADER_BYTES:
            raise _HeadersTooLarge
        if len(self.pipeline) >= MAX_QUEUED:
            raise TooManyQueued
        HttpToolsProtocol.on_headers_complete(self)  # super() costs twice as much
        self._barren = 0
        if len(self.pipeline) > self._waiting:  # this request waits for an earlier one
            self._wait(1, 0)

    def on_chunk_header(self) -> None:
        # headers from now on are trailers, which the app must not see
        self.headers = []

    def on_body(self, body: bytes) -> None:
        # like uvicorn, without its check for an upgrade
        self._barren = 0
        cycle = self.cycle
        if not cycle.response_complete:
            cycle.body += body
            if len(cycle.body) > HIGH_WATER_LIMIT:
                self.flow.pause_reading()
            cycle.message_event.set()
            if self.pipeline:
                self._wait(0, len(body))

    def on_message_complete(self) -> None:
        # like uvicorn, but also for a request that was answered before it was complete
        if not self._declined:
            self._barren = 0
            cycle = self.cycle
            cycle.more_body = False
            cycle.message_event.set()

    def on_response_complete(self) -> None:
        goes_on_reading = len(self.pipeline) == 1
        HttpToolsProtocol.on_response_complete(self)
        if self.transport.is_closing() or self._is_over:
            self._abort_later()
        elif goes_on_reading and self._timer is not None:
            # the client could not send it until now
            self._stop_timer()
            self._keep_waiting()

    def shutdown(self) -> None:
        super().shutdown()
        if self.transport.is_closing():
            self._abort_later()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_timer = self.loop.call_later(self._bounds.body_timeout_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def timeout_keep_alive_handler(self) -> None:
        # close() would wait for a client that does not read its answer
        self.transport.abort()

    def _abort_later(self) -> None:
        """Bounds a close, which waits until the client has read everything: it has as long as for a body."""
        if self._end_timer is None:
            self._end_timer = self.loop.call_later(self._bounds.body_timeout_s, self.transport.abort)

    def _should_upgrade(self) -> bool:
        """Declines an offer to upgrade (uvicorn asks): prepares the headers to be parsed again without it."""
        if self.parser.get_method() != b"CONNECT":
            lines = [b"%s %s HTTP/1.1" % (self.parser.get_method(), self.url)]
            lines += [b"%s: %s" % header for header in self.headers if header[0] not in _UPGRADE]
            if not self.parser.should_keep_alive():
                lines.append(b"connection: close")
            self._declined = b"\r\n".join([*lines, b"", b""])
        return bool(self._declined)

    def _decline(self, offer: httptools.HttpParserUpgrade, data: bytes) -> None:
        """Parses the request again: the parser would drop a body after an offer, and Java offers HTTP/2."""
        offset = offer.args[0]
        while self._declined:
            data, self._declined = self._declined + data[offset:], b""
            self.parser = httptools.HttpRequestParser(self)
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as another:
                offset = another.args[0]

    def _awaits_headers(self) -> bool:
        """Whether we wait for headers, not for a body; uvicorn sets the method when they are complete."""
        return self.scope is None or "method" not in self.scope

    def _keep_waiting(self) -> None:
        if self._barren > MAX_HEADER_BYTES:
            self._reject_headers()
            return
        awaits_headers = self._awaits_headers()
        awaited = (self.cycle, awaits_headers)
        if self._timer is None or self._timer_is_for != awaited:
            self._stop_timer()
            self._timer_is_for = awaited
            bounds = self._bounds
            timeout_s = bounds.header_timeout_s if awaits_headers else bounds.body_timeout_s
            self._timer = self.loop.call_later(timeout_s, self._on_late)

    def _stay_idle(self) -> None:
        self._stop_timer()
        # after the rest of a body that was answered early: uvicorn counts idle time only from an answer
        if self.cycle.response_complete and not self.transport.is_closing():
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_late(self) -> None:
        self._timer = None
        if self.transport.is_closing():
            return
        if self.scope is None:
            self.transport.close()  # the client never sent anything
        elif self._is_answering_another():
            self._keep_waiting()  # the delay is ours
        else:
            what = "headers" if self._awaits_headers() else "body"
            self._reject(408, "slow-request", f"the request's {what} did not arrive in time")

    def _is_body_awaited(self) -> bool:
        """Whether the rest of the latest request is missing, rather than the headers of a new one."""
        return self.cycle is not None and self.cycle.more_body and not self._awaits_headers()

    def _is_answering_another(self) -> bool:
        """Whether a request before the awaited one is still being answered."""
        if self._is_body_awaited():
            return bool(self.pipeline)
        return self.cycle is not None and not self.cycle.response_complete

    def _header_bytes(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def _reject_unreadable(self, error: httptools.HttpParserError) -> None:
        if isinstance(error.__context__, _HeadersTooLarge):
            self._reject_headers()
        elif isinstance(error.__context__, TooManyQueued):
            self._end_after(self.cycle)
        else:
            self._reject(400, "malformed-request", f"the request is not valid HTTP/1.1: {error}")

    def _reject_headers(self) -> None:
        detail = f"a request's headers may have at most {MAX_HEADER_BYTES} bytes"
        self._reject(431, "headers-too-large", detail)

    def _reject(self, status: int, kind: str, detail: str) -> None:
        """Rejects the awaited request, unless others must be answered first, and ends the connection."""
        if self.transport.is_closing() or self._is_over:
            return
        is_body_awaited = self._is_body_awaited()
        if self._is_answering_another() and not is_body_awaited:
            # the client would take the rejection for the answer to an earlier request
            self._end_after(self.cycle)
            return
        if not self.pipeline and not (is_body_awaited and self.cycle.response_started):
            answer = problem(status, kind, detail, headers={"connection": "close"})
            if is_body_awaited:
                answer.raw_headers += self._bounds.headers_for(self.scope)
                disconnect(self.cycle)
            self._write(answer)
            self._bounds.on_rejected(status, kind)
        self.transport.close()
        self._abort_later()
