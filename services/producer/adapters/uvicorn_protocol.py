"""Uvicorn's HTTP protocol with an end to waiting: for headers, for bodies, and for answers to be taken.

Uvicorn itself waits for ever for what a client has begun to send, takes headers of any size, and answers
what it cannot parse in front of requests that are still being answered, and loses a body that comes with
an offer to upgrade. Here a connection has at most one
timer, and none while requests come whole: the hot path pays for a comparison.
Wired by `__main__.py`; what the app refuses is the door's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from shared.http import problem

MAX_HEADER_BYTES = 32 * 1024
"""Of a request line with its headers; browsers send all cookies of a site with a beacon."""

_UPGRADE = (b"upgrade", b"connection", b"http2-settings")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How long a client may take, in seconds; `on_refused` is told status and kind of each refusal.

    `headers_for` gives what the answer to a request (its ASGI scope) carries for the page that it is from.
    """

    header_timeout_s: float
    body_timeout_s: float
    headers_for: Callable[[Any], Iterable[tuple[bytes, bytes]]] = lambda scope: ()
    on_refused: Callable[[int, str], None] = lambda status, kind: None


class _Awaited(Enum):
    """What the client has begun to send, and not finished."""

    NOTHING = 0
    HEADERS = 1
    BODY = 2


class _HeadersTooLarge(Exception):
    """Ends the parser's work on these headers."""


class BoundedHttpProtocol(HttpToolsProtocol):
    """One connection. `_barren` are bytes in a row that brought neither a body nor the end of a request."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        bounds: Bounds,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._bounds = bounds
        self._awaited = _Awaited.NOTHING
        self._barren = 0
        self._declined = b""
        self._timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_timer(self._bounds.header_timeout_s)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_timer()
        self.resume_writing()

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        self._barren += len(data)
        try:
            while data:
                data = self._feed(data)
        except httptools.HttpParserError as error:
            if isinstance(error.__context__, _HeadersTooLarge):
                self._refuse_headers()
            else:
                self._refuse(400, "malformed-request", f"this is not HTTP/1.1: {error}")
            return
        if self._awaited is not _Awaited.NOTHING:
            self._keep_waiting()
        elif self.cycle is not None and self.cycle.response_complete:
            # the rest of what was answered early: uvicorn counts idle time only from an answer on
            self._stay_idle()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._awaited = _Awaited.HEADERS

    def on_headers_complete(self) -> None:
        if self._barren > MAX_HEADER_BYTES and self._header_bytes() > MAX_HEADER_BYTES:
            raise _HeadersTooLarge
        if self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT":
            self._declined = self._head_without_upgrade()
            return
        super().on_headers_complete()
        # trailers of a chunked body are no headers
        self.headers = []
        self._barren = 0
        self._awaited = _Awaited.BODY
        self._stop_timer()

    def on_body(self, body: bytes) -> None:
        self._barren = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._declined:
            return
        super().on_message_complete()
        self._barren = 0
        self._awaited = _Awaited.NOTHING
        self._stop_timer()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_timer = self.loop.call_later(self._bounds.body_timeout_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def timeout_keep_alive_handler(self) -> None:
        # closing would wait for a client that does not take its answer
        self.transport.abort()

    def _feed(self, data: bytes) -> bytes:
        """Has the data parsed; what is to be parsed once more, because it came with an offer to upgrade.

        The parser would drop the body behind such an offer, which Java's HttpClient makes for HTTP/2.
        """
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            head, self._declined = self._declined, b""
            self.parser = httptools.HttpRequestParser(self)
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
            return head + data[offer.args[0] :]
        return b""

    def _head_without_upgrade(self) -> bytes:
        lines = [b"%s %s HTTP/1.1" % (self.parser.get_method(), self.url)]
        lines += [b"%s: %s" % header for header in self.headers if header[0] not in _UPGRADE]
        if not self.parser.should_keep_alive():
            lines.append(b"connection: close")
        return b"\r\n".join([*lines, b"", b""])

    def _keep_waiting(self) -> None:
        if self._barren > MAX_HEADER_BYTES:
            self._refuse_headers()
        elif self._timer is None:
            awaits_headers = self._awaited is _Awaited.HEADERS
            self._start_timer(
                self._bounds.header_timeout_s if awaits_headers else self._bounds.body_timeout_s
            )

    def _stay_idle(self) -> None:
        if not self.transport.is_closing():
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def _start_timer(self, timeout_s: float) -> None:
        self._timer = self.loop.call_later(timeout_s, self._on_late)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_late(self) -> None:
        self._timer = None
        if self.transport.is_closing():
            return
        if self._awaited is _Awaited.NOTHING:
            self.transport.close()  # nothing was ever sent
        elif self._is_answering_another():
            self._keep_waiting()  # we are the slow ones
        else:
            what = "headers" if self._awaited is _Awaited.HEADERS else "body"
            self._refuse(408, "slow-request", f"the request's {what} did not arrive in time")

    def _is_answering_another(self) -> bool:
        """Whether a request before the one that is awaited has not been answered yet."""
        if self._awaited is _Awaited.HEADERS:
            return self.cycle is not None and not self.cycle.response_complete
        return bool(self.pipeline)

    def _header_bytes(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def _refuse_headers(self) -> None:
        detail = f"a request's headers may have at most {MAX_HEADER_BYTES} bytes"
        self._refuse(431, "headers-too-large", detail)

    def _refuse(self, status: int, kind: str, detail: str) -> None:
        """Answers the request that is awaited, unless others come first, and ends the connection."""
        if self.transport.is_closing():
            return
        if self._awaited is not _Awaited.BODY and self.cycle is not None and not self.cycle.response_complete:
            # a refusal would be taken for the answer of a request before
            self.cycle.keep_alive = False
            self.flow.pause_reading()
            return
        awaited_is_unanswered = self._awaited is not _Awaited.BODY or not self.cycle.response_started
        if awaited_is_unanswered and not self.pipeline:
            answer = problem(status, kind, detail, headers={"connection": "close"})
            headers = [*self.server_state.default_headers, *answer.raw_headers]
            if self._awaited is _Awaited.BODY:
                headers += self._bounds.headers_for(self.scope)
            lines = [b"%s: %s\r\n" % header for header in headers]
            self.transport.write(b"".join([STATUS_LINE[status], *lines, b"\r\n", bytes(answer.body)]))
            self._bounds.on_refused(status, kind)
        self.transport.close()
