"""A service's real HTTP connection in memory: a transport for httpx, and the server's side of a socket."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.server import ServerState

from shared.server.bounds import Bounds
from shared.server.connection import HttpConnection
from shared.server.face import Face

PATIENT = Bounds(header_timeout_s=20, body_timeout_s=20, now_s=lambda: 0.0)
"""Turns end by the number of answers alone: a busy machine must not change what a test sees."""
HEADERS_TURNS = 20
"""Turns of the loop in which the server may reject a request by its headers, before the body is sent."""
CONFIG = uvicorn.Config(None, log_config=None)  # type: ignore[arg-type]


class Wire(asyncio.Transport):
    """Collects what the server writes in `written`; as in uvloop, writing after the end is an error."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.wrote = asyncio.Event()
        self.may_send = asyncio.Event()
        self.may_send.set()
        self.is_lost = self.is_ended = self._is_closing = False
        self.lose: Callable[[None], None] = lambda error: None

    def write(self, data: Any) -> None:
        if self.is_lost or self.is_ended:
            raise RuntimeError("write after the end")
        self.written += data
        self.wrote.set()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.is_ended = True
        self.wrote.set()

    def is_closing(self) -> bool:
        return self._is_closing

    @property
    def reads(self) -> bool:
        """Whether the server reads what a client sends."""
        return self.may_send.is_set()

    def pause_reading(self) -> None:
        self.may_send.clear()

    def resume_reading(self) -> None:
        self.may_send.set()

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            asyncio.get_running_loop().call_soon(self._lose)

    def abort(self) -> None:
        self.close()

    def _lose(self) -> None:
        self.is_lost = True
        self.wrote.set()
        self.lose(None)


def connected(face: Face, bounds: Bounds = PATIENT) -> tuple[HttpConnection, Wire]:
    """A new connection, and the wire that it has to its client."""
    wire = Wire()
    connection = HttpConnection(CONFIG, ServerState(), {}, face=face, bounds=bounds)
    wire.lose = connection.connection_lost
    connection.connection_made(wire)
    return connection, wire


class FaceTransport(httpx.AsyncBaseTransport):
    """Sends each request over a connection of its own; stops sending when the answer is there."""

    def __init__(self, face: Face) -> None:
        self._face = face

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        connection, wire = connected(self._face)
        sending = asyncio.ensure_future(_send(connection, wire, request))
        try:
            return await _response(wire, request.method)
        finally:
            sending.cancel()
            wire.abort()


def as_asgi(face: Face) -> ASGIApp:
    """The face as an ASGI app, for a client that needs one."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await face.app(scope, receive, send)
            return
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
        headers = [pair for pair in scope["headers"] if pair[0] != b"content-length"]
        url = httpx.URL(scheme="http", host="service", raw_path=target)
        answer = await FaceTransport(face).handle_async_request(
            httpx.Request(scope["method"], url, headers=headers, content=body)
        )
        await send(
            {"type": "http.response.start", "status": answer.status_code, "headers": answer.headers.raw}
        )
        await send({"type": "http.response.body", "body": answer.content})

    return app


async def _send(connection: HttpConnection, wire: Wire, request: httpx.Request) -> None:
    is_chunked = "transfer-encoding" in request.headers
    lines = [b"%s %s HTTP/1.1" % (request.method.encode(), request.url.raw_path)]
    lines += [b"%s: %s" % pair for pair in request.headers.raw if pair[0].lower() != b"transfer-encoding"]
    lines += [b"transfer-encoding: chunked"] * is_chunked
    connection.data_received(b"\r\n".join([*lines, b"", b""]))
    for _ in range(HEADERS_TURNS):
        await asyncio.sleep(0)
    assert isinstance(request.stream, httpx.AsyncByteStream)
    async for piece in request.stream:
        if piece:
            connection.data_received(b"%x\r\n%s\r\n" % (len(piece), piece) if is_chunked else piece)
        await wire.may_send.wait()
        await asyncio.sleep(0)
    if is_chunked:
        connection.data_received(b"0\r\n\r\n")


async def _response(wire: Wire, method: str) -> httpx.Response:
    while True:
        head, found, rest = bytes(wire.written).partition(b"\r\n\r\n")
        if found:
            status, *lines = head.split(b"\r\n")
            headers = [(name, value) for name, _, value in (line.partition(b": ") for line in lines)]
            length = int(dict(headers).get(b"content-length", b"0"))
            if method == "HEAD" or len(rest) >= length:
                break
        assert not wire.is_lost, "the connection ended without an answer"
        wire.wrote.clear()
        await wire.wrote.wait()
    content = b"" if method == "HEAD" else rest[:length]
    return httpx.Response(int(status.split()[1]), headers=headers, content=content)
