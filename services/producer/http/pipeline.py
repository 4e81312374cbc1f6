"""Uvicorn's HTTP protocol, with a bound on the requests that a connection may queue.

Uvicorn resumes reading with each answer and each read of a body, however many requests still wait behind the
running one; and when the connection is lost, it only notifies the latest request. Here nothing is read while
requests wait, and a lost connection notifies all. `BoundedHttpProtocol` (protocol.py) adds the timeouts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sized
from typing import Any

from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

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

    `_is_over`: everything is answered; bytes that still arrive are dropped until the client has seen that.
    """

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._running: RequestResponseCycle | None = None
        self._is_over = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = _Flow(transport, self.pipeline)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        if self._running is not None:
            disconnect(self._running)
        while self.pipeline:
            cycle, _ = self.pipeline.pop()
            disconnect(cycle)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        HttpToolsProtocol._start_asgi_task(self, cycle, app)  # super() costs twice as much

    def _end_behind_answers(self) -> None:
        """Makes the latest accepted request the connection's last one."""
        self.cycle.keep_alive = False
        self.cycle.transport = _LastTransport(self.transport, self._end)
        self.flow.pause_reading()

    def _end(self) -> None:
        self._is_over = True
        if not self.transport.is_closing():
            self.transport.write_eof()


def disconnect(cycle: RequestResponseCycle) -> None:
    """Makes the request's app read a disconnect, and drops whatever it still sends."""
    cycle.disconnected = True
    cycle.on_response = (
        _nothing  # breaks the reference cycle with the connection, so its body is freed at once
    )
    cycle.message_event.set()


def _nothing() -> None:
    pass
