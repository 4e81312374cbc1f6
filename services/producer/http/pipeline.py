"""Uvicorn's HTTP protocol, with bounds on the number of connections and on the requests that they queue.

Uvicorn resumes reading with each answer and each read of a body, however many requests still wait behind the
running one; and when the connection is lost, it only notifies the latest request. Here nothing is read while
requests wait, what waits counts as in flight (limits.py), and a lost connection notifies all. A connection
beyond the bound has an app that answers one request (connections.py).
`BoundedHttpProtocol` (protocol.py) adds the timeouts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sized
from typing import Any

from fastapi import Response
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from services.producer.http.bounds import Bounds
from services.producer.http.connections import WATCHING
from services.producer.http.limits import Overloaded
from services.producer.http.refusals import refusal
from shared.service.http import RETRY_AFTER_S, problem

MAX_QUEUED = 64
"""Requests that wait for the answer to an earlier one, 2 KB each; a single read may bring 8,000."""


class TooManyQueued(Exception):
    """Stops the parser for good."""


class _Flow(FlowControl):
    """Reads nothing while requests are queued, so their bodies never exceed what one read has brought."""

    def __init__(self, transport: asyncio.Transport, queued: Sized) -> None:
        super().__init__(transport)
        self._queued = queued

    def resume_reading(self) -> None:
        if self.read_paused and not self._queued:
            super().resume_reading()


class _LastTransport(asyncio.Transport):
    """The transport of a connection's last request; `close` calls `end`, because a real close may reset."""

    def __init__(self, transport: asyncio.Transport, end: Callable[[], None]) -> None:
        super().__init__()
        self.write = transport.write  # type: ignore[method-assign]
        self.is_closing = transport.is_closing  # type: ignore[method-assign]
        self.close = end  # type: ignore[method-assign]


class PipelinedHttpProtocol(HttpToolsProtocol):
    """One connection: the running request, and the queued ones in `pipeline`, the latest first.

    `_waiting`: how many of the queued ones count as in flight. `_is_over`: everything is answered; bytes that
    still arrive are dropped until the client has seen that. `_is_excess`: the connection is beyond the bound.
    """

    def __init__(self, *given: Any, bounds: Bounds) -> None:
        super().__init__(*given)
        self._bounds = bounds
        self._running: RequestResponseCycle | None = None
        self._waiting = 0
        self._is_over = False
        self._is_excess = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = _Flow(transport, self.pipeline)
        self._is_excess = not self._bounds.connections.admit()
        if self._is_excess:
            self._bounds.reserve.add(self, self._cut_off)
            self.app = self._answer_once

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._is_excess:
            self._bounds.reserve.discard(self)
            self.app = self.config.loaded_app  # breaks the reference cycle
        else:
            self._bounds.connections.release()
        self._unset_keepalive_if_required()
        if self._running is not None:
            disconnect(self._running)
        self._drop_queued()

    def _drop_queued(self) -> None:
        while self.pipeline:
            cycle, _ = self.pipeline.pop()
            self._stop_waiting(cycle)
            disconnect(cycle)

    async def _answer_once(self, scope: Any, receive: Any, send: Any) -> None:
        """The app of a connection beyond the bound: one answer, a 503 unless the client only looks."""

        async def send_last(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"connection", b"close")]
            await send(message)

        self._drop_queued()
        if self._running is not None:
            self._end_after(self._running)
        answer: Any = self.config.loaded_app
        if scope["path"] not in WATCHING or scope["method"] not in ("GET", "HEAD"):
            detail = f"the producer accepts at most {self._bounds.connections.most} connections"
            headers = {"retry-after": str(RETRY_AFTER_S)}
            answer = problem(503, "too-many-connections", detail, headers=headers)
            answer.raw_headers += self._bounds.headers_for(scope)
            self._bounds.on_rejected(503, "too-many-connections")
        await answer(scope, receive, send_last)

    def _cut_off(self) -> None:
        """Ends a connection beyond the bound in favour of a newer one."""
        if not self._is_over:
            self._bounds.on_rejected(503, "too-many-connections")
        self.transport.abort()

    def _write(self, answer: Response) -> None:
        """Sends an answer that no app gives."""
        headers = [*self.server_state.default_headers, *answer.raw_headers]
        lines = [b"%s: %s\r\n" % header for header in headers]
        status = STATUS_LINE[answer.status_code]
        self.transport.write(b"".join([status, *lines, b"\r\n", bytes(answer.body)]))

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        if self._waiting:  # else the request starts as it arrives
            self._stop_waiting(cycle)
        HttpToolsProtocol._start_asgi_task(self, cycle, app)  # super() costs twice as much

    def _wait(self, requests: int, count: int) -> None:
        """Counts the latest request as waiting, or bytes of its body.

        Raises TooManyQueued if there is no room; then the request will get a 429, as the last one.
        """
        self._waiting += requests
        self._bounds.inflight.add_waiting(requests, count)
        if not self._bounds.inflight.has_room_to_wait():
            cycle, _ = self.pipeline[0]
            self._bounds.inflight.add_waiting(0, -len(cycle.body))
            cycle.body.clear()
            cycle.more_body = False  # the rest is not read
            self.pipeline[0] = (cycle, self._refuse_overload)
            raise TooManyQueued

    def _stop_waiting(self, cycle: RequestResponseCycle) -> None:
        self._waiting -= 1
        self._bounds.inflight.add_waiting(-1, -len(cycle.body))

    async def _refuse_overload(self, scope: Any, receive: Any, send: Any) -> None:
        """The app of a request that had no room to wait."""
        answer = refusal(Overloaded())
        answer.raw_headers += self._bounds.headers_for(scope)
        self._bounds.on_rejected(answer.status_code, "overloaded")
        await answer(scope, receive, send)

    def _end_after(self, last: RequestResponseCycle) -> None:
        """Makes an accepted request the connection's last one."""
        last.keep_alive = False
        last.transport = _LastTransport(self.transport, self._end)
        self.flow.pause_reading()

    def _end(self) -> None:
        self._is_over = True
        if not self.transport.is_closing():
            self.transport.write_eof()


def disconnect(cycle: RequestResponseCycle) -> None:
    """Makes the request's app read a disconnect, and drops whatever it still sends."""
    cycle.disconnected = True
    # break the reference cycles with the connection, so that the body is freed at once
    cycle.on_response = _nothing
    if isinstance(cycle.transport, _LastTransport):
        cycle.transport.close = _nothing  # type: ignore[method-assign]
    cycle.message_event.set()


def _nothing() -> None:
    pass
