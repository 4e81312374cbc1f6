"""Uvicorn's HTTP protocol with an end to what a connection may queue, and to what is queued.

Uvicorn reads on with each answer and with each look for a body, however many requests still wait behind the
one that runs; and when the connection is lost it tells only the latest of them. Here nothing is read while
requests wait, and all are told. `BoundedHttpProtocol` adds the time that a client may take.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sized
from typing import Any

from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

MAX_QUEUED = 64
"""Requests that wait, with 2 KB each, for the answer to one before; a single read may bring 8,000."""


class TooManyQueued(Exception):
    """Ends the parser's work on a connection."""


class _Flow(FlowControl):
    """Reads nothing while requests are queued: their bodies are never more than one read has brought."""

    def __init__(self, transport: asyncio.Transport, queued: Sized) -> None:
        super().__init__(transport)
        self._queued = queued

    def resume_reading(self) -> None:
        if self.read_paused and not self._queued:
            super().resume_reading()


class _LastTransport(asyncio.Transport):
    """What a connection's last request has: its end is not a close, which with unread bytes is a reset."""

    def __init__(self, transport: asyncio.Transport, end: Callable[[], None]) -> None:
        super().__init__()
        self.write = transport.write  # type: ignore[method-assign]
        self.is_closing = transport.is_closing  # type: ignore[method-assign]
        self.close = end  # type: ignore[method-assign]


class PipelinedHttpProtocol(HttpToolsProtocol):
    """One connection: the request that runs, and those in `pipeline`, of which the latest comes first.

    `_is_over`: all is answered, and whatever still comes is dropped until the client has seen that.
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
            tell_gone(self._running)
        while self.pipeline:
            cycle, _ = self.pipeline.pop()
            tell_gone(cycle)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        HttpToolsProtocol._start_asgi_task(self, cycle, app)  # super() costs twice as much

    def _end_behind_answers(self) -> None:
        """The latest request that was taken is the last one."""
        self.cycle.keep_alive = False
        self.cycle.transport = _LastTransport(self.transport, self._end)
        self.flow.pause_reading()

    def _end(self) -> None:
        self._is_over = True
        if not self.transport.is_closing():
            self.transport.write_eof()


def tell_gone(cycle: RequestResponseCycle) -> None:
    """From now on the request's app reads that the client is gone, and what it still sends is dropped."""
    cycle.disconnected = True
    cycle.on_response = _nothing  # else it is in a ring with the connection, and its body stays for long
    cycle.message_event.set()


def _nothing() -> None:
    pass
