"""The producer's HTTP face behind the real server on loopback, and a client that sends arbitrary bytes."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from services.producer.core.ingest import Portion
from services.producer.settings import ProducerSettings
from shared.server.bounds import Bounds
from shared.server.connection import HttpConnection
from shared.server.listener import http_server
from shared.service.tls import client_context
from tests.fakes.sink import InMemoryFragmentSink
from tests.servers import free_port
from tests.unit.producer.face import TABLE, Producer
from tests.waiting import DEADLINE_S

PATIENT = Bounds(header_timeout_s=DEADLINE_S, body_timeout_s=DEADLINE_S, now_s=lambda: 0.0)
"""Turns end by the number of answers alone: a busy machine must not change what a test sees."""


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer."""

    status: int
    headers: dict[str, str]
    content: bytes

    @property
    def body(self) -> Any:
        """Its JSON."""
        return json.loads(self.content)


class Connection:
    """One connection to the server; every wait has a deadline."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    def send(self, *pieces: bytes) -> None:
        """Passes the bytes to the operating system."""
        for piece in pieces:
            self.writer.write(piece)

    async def send_apart(self, *pieces: bytes) -> None:
        """Sends each piece so that it arrives alone: the server runs before the next is sent."""
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()
            for _ in range(5):
                await asyncio.sleep(0)

    async def answer(self) -> Answered:
        """The next answer. Raises IncompleteReadError if the server closes first."""
        async with asyncio.timeout(DEADLINE_S):
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode()
            status, *lines = head.strip().split("\r\n")
            headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
            content = await self._reader.readexactly(int(headers.get("content-length", 0)))
        return Answered(int(status.split()[1]), headers, content)

    async def rest(self) -> bytes:
        """Everything until the server closes."""
        async with asyncio.timeout(DEADLINE_S):
            with contextlib.suppress(ConnectionError):
                return await self._reader.read()
            return b""


class Stalled(InMemoryFragmentSink):
    """A sink whose acknowledgements wait for `release`."""

    def __init__(self) -> None:
        super().__init__(TABLE.count)
        self.release = asyncio.Event()
        self._releasing: set[asyncio.Future[Any]] = set()
        self.waiting = asyncio.Event()

    def send(self, portions: Mapping[int, Portion], on_outcome: Callable[[list[int]], None]) -> None:
        self.waiting.set()
        super().send(portions, lambda unstored: self._later(unstored, on_outcome))

    def _later(self, unstored: list[int], on_outcome: Callable[[list[int]], None]) -> None:
        releasing = asyncio.ensure_future(self.release.wait())
        releasing.add_done_callback(lambda done: None if done.cancelled() else on_outcome(unstored))
        self._releasing.add(releasing)

    async def send_to_all(self, value: bytes) -> list[int]:
        self.waiting.set()
        await self.release.wait()
        return await super().send_to_all(value)


class Server(Producer):
    """The server, and the producer behind it."""

    def __init__(
        self, bounds: Bounds = PATIENT, sink: InMemoryFragmentSink | None = None, **settings: Any
    ) -> None:
        super().__init__(sink=sink, **settings)
        self.port = free_port()
        self.bounds = bounds
        self.tls = ProducerSettings(**settings).tls
        self.connections: list[HttpConnection] = []

    def accept(self, **given: Any) -> HttpConnection:
        """A new connection."""
        self.connections.append(HttpConnection(**given))
        return self.connections[-1]

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A new connection."""
        tls = client_context(self.tls) if self.tls.is_serving else None
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=tls)
        try:
            yield Connection(reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


@contextlib.asynccontextmanager
async def serving(
    bounds: Bounds = PATIENT,
    sink: InMemoryFragmentSink | None = None,
    keep_alive_s: float = DEADLINE_S,
    stop_grace_s: float = 5,
    **settings: Any,
) -> AsyncIterator[Server]:
    """Runs a server for the block, and stops it gracefully at the end, as the producer does."""
    server = Server(dataclasses.replace(bounds, keep_alive_s=keep_alive_s), sink, **settings)
    async with http_server(
        server.face,
        "127.0.0.1",
        server.port,
        bounds=server.bounds,
        tls=server.tls,
        grace_s=stop_grace_s,
        connect=server.accept,
    ):
        yield server
        server.door.leave()


def request(body: bytes, *headers: str, path: str = "/fragments", length: bool = True) -> bytes:
    """A POST with these header lines; the type is JSON unless they have one."""
    lines = [f"POST {path} HTTP/1.1", "host: producer", *headers]
    if not any(line.lower().startswith("content-type:") for line in headers):
        lines.append("content-type: application/json")
    if length:
        lines.append(f"content-length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def chunked(body: bytes, size: int) -> bytes:
    """The body in chunks of that size."""
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
