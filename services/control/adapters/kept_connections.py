"""Asks the same addresses again and again, over HTTP: connections stay open, and a request costs little.

Control asks every member twice a second. Through httpx and its pool, that took most of control's CPU
(docs/performance.md). Here a request is encoded once for each URL, and its answer is a status and a body.
Redirects are not followed; there are no proxies, cookies or compression.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, Self, cast
from urllib.parse import urlsplit

import httptools

from shared.service.tls import TlsFiles, client_context

ANSWER_TIMEOUT_S: Final = 2.0
"""For the whole request, including a new connection."""
MOST_BYTES: Final = 1 << 25
"""Of an answer's body: the status of 10,000 streams has some 2 MB."""

Ask = Callable[[str], Awaitable[bytes | None]]
"""Returns the body of a success at the URL; None if there is no such answer in time."""
logger = logging.getLogger(__name__)


class _Place(NamedTuple):
    """Where an address is answered."""

    is_tls: bool
    host: str
    port: int


class _Closed(ConnectionError):
    """The connection ended before the answer did."""


class KeptConnections:
    """An async context manager that closes its connections. Each carries one request at a time."""

    def __init__(self, tls: TlsFiles | None = None) -> None:
        self._context = client_context(tls or TlsFiles())
        self._idle: dict[_Place, list[_Connection]] = {}

    def __repr__(self) -> str:
        return f"<KeptConnections, {sum(map(len, self._idle.values()))} idle>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for connection in [one for found in self._idle.values() for one in found]:
            connection.close()

    async def get(self, url: str) -> bytes | None:
        """The body of a success at the URL; None if there is no such answer within ANSWER_TIMEOUT_S."""
        try:
            place, request = _parsed(url)
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                connection = await self._connection(place)
                status, body = await connection.answer(request)
        # ValueError: no such address can exist
        except (OSError, ValueError, httptools.HttpParserError) as error:
            logger.debug("no answer", extra={"url": url, "why": repr(error)})
            return None
        if connection.is_open:
            self._idle.setdefault(place, []).append(connection)
        return body if status == 200 else None

    async def _connection(self, place: _Place) -> _Connection:
        if place in self._idle:
            return self._taken(place, self._idle[place][-1])
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: _Connection(functools.partial(self._taken, place)),
            place.host,
            place.port,
            ssl=self._context if place.is_tls else None,
        )
        return connection

    def _taken(self, place: _Place, connection: _Connection) -> _Connection:
        """The connection, which is no longer idle."""
        found = self._idle.get(place, [])
        if connection in found:
            found.remove(connection)
            if not found:
                del self._idle[place]
        return connection


class _Connection(asyncio.Protocol):
    """A connection, of which `on_lost` learns the end. The parser calls the methods named `on_…`."""

    def __init__(self, on_lost: Callable[[_Connection], object]) -> None:
        self._on_lost = on_lost
        self._parser = httptools.HttpResponseParser(self)
        self._body = bytearray()
        self._waiting: asyncio.Future[tuple[int, bytes]] | None = None
        self.is_open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass
        self.is_open = True

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(exc or _Closed("the connection was closed"))
        self._on_lost(self)

    def data_received(self, data: bytes) -> None:
        if self._waiting is None:
            self.close()  # whatever this answers
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(error)

    def on_body(self, data: bytes) -> None:
        self._body += data
        if len(self._body) > MOST_BYTES:
            self._fail(ValueError("the answer is too long"))

    def on_message_complete(self) -> None:
        answer, self._body = (self._parser.get_status_code(), bytes(self._body)), bytearray()
        waiting = self._end_of_wait()
        if waiting is None or not self._parser.should_keep_alive():
            self.close()
        if waiting is not None:
            waiting.set_result(answer)

    async def answer(self, request: bytes) -> tuple[int, bytes]:
        """Status and body of the answer. Without one, the connection is closed."""
        if not self.is_open:
            raise _Closed("the connection was closed")
        waiting: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()
        self._waiting = waiting
        self._transport.write(request)
        try:
            return await waiting
        except asyncio.CancelledError:  # the time is over, but the answer may still come
            self._waiting = None
            self.close()
            raise

    def close(self) -> None:
        """Ends it at once."""
        self.is_open = False
        self._transport.abort()

    def _fail(self, error: Exception) -> None:
        self.close()
        if (waiting := self._end_of_wait()) is not None:
            waiting.set_exception(error)

    def _end_of_wait(self) -> asyncio.Future[tuple[int, bytes]] | None:
        """The future of who waits for an answer, once; None if nobody does, or no longer."""
        waiting, self._waiting = self._waiting, None
        return None if waiting is None or waiting.done() else waiting


@functools.lru_cache(maxsize=4096)
def _parsed(url: str) -> tuple[_Place, bytes]:
    """Where to ask, and the request. Raises ValueError if nothing can be asked there."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"not an address: {url!r}")
    is_tls = parts.scheme == "https"
    target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    head = f"GET {target} HTTP/1.1\r\nHost: {parts.netloc.rpartition('@')[2]}\r\n\r\n"
    if not head.isascii() or not head.replace("\r\n", "").isprintable() or " " in target:
        raise ValueError(f"not an address: {url!r}")
    return _Place(is_tls, parts.hostname, parts.port or (443 if is_tls else 80)), head.encode()
