"""A TCP proxy on loopback that cuts, delays, refuses or swallows on command, and counts what it did.

One `Proxy` leads to one server. It knows Kafka's and ZooKeeper's frames, and HTTP between members, well
enough to match an answer with its request, so it can swallow exactly the answer to a commit or a claim: the
request takes effect, and from its answer on nothing comes back on that connection, as when a network loses
one direction. Swallowed answers may be delivered late.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from tests.servers import free_port

Protocol = Literal["kafka", "zookeeper", "http", "raw"]

# Kafka's numbers of requests
PRODUCE = 0
END_TXN = 26
# ZooKeeper's numbers of operations
MULTI = 14
# our own for the messages of a handover
OFFER = 1
COMPLETE = 2
ANY = -1
"""Of bytes whose frames are not looked at, and of an answer to any request."""

CHUNK_BYTES = 256 * 1024
CLOSE_S = 1.0
_WORDS = (b"srvr", b"ruok", b"mntr")
"""ZooKeeper's four-letter words have no frame."""
_LINES = {b"PUT /handover/": OFFER, b"POST /handover/": COMPLETE}
"""How requests begin; a client sends the next one when it has the last one's answer."""


class Frames:
    """Cuts a stream of bytes into frames: four bytes of length, then that many bytes."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that are complete now, their lengths included."""
        self._buffer += data
        found = []
        while len(self._buffer) >= 4:
            size = 4 + int.from_bytes(self._buffer[:4], "big")
            if len(self._buffer) < size:
                break
            found.append(bytes(self._buffer[:size]))
            del self._buffer[:size]
        return found


@dataclass(eq=False)
class Connection:
    """One connection through a proxy; `asked`: the kinds of the requests without an answer, oldest first."""

    protocol: Protocol
    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    asked: deque[int] = field(default_factory=deque)
    held: list[bytes] = field(default_factory=list)
    is_mute: bool = False
    requests: Frames = field(default_factory=Frames)
    answers: Frames = field(default_factory=Frames)

    def requested(self, data: bytes) -> list[int]:
        """The kinds of the requests that are complete with these bytes."""
        if data in _WORDS:
            self.protocol = "raw"
        if self.protocol == "raw":
            return []
        if self.protocol == "http":
            kinds = [kind for line, kind in _LINES.items() if data.startswith(line)]
            self.asked.extend(kinds)
            return kinds
        where = slice(4, 6) if self.protocol == "kafka" else slice(8, 12)
        kinds = [int.from_bytes(frame[where], "big", signed=True) for frame in self.requests.feed(data)]
        self.asked.extend(kinds)
        return kinds

    def answered(self, data: bytes) -> list[tuple[int, bytes]]:
        """The answers that are complete with these bytes, each with the kind of its request."""
        if self.protocol == "raw":
            return [(ANY, data)]
        if self.protocol == "http":
            return [(self._kind_of(data), data)]
        return [(self._kind_of(frame), frame) for frame in self.answers.feed(data)]

    def _kind_of(self, frame: bytes) -> int:
        is_watch_event = self.protocol == "zookeeper" and frame[4:8] == b"\xff\xff\xff\xff"
        return ANY if is_watch_event or not self.asked else self.asked.popleft()

    def cut(self) -> None:
        """Ends both sides by a reset."""
        for writer in (self.client, self.server):
            with contextlib.suppress(OSError):
                where: socket.socket = writer.get_extra_info("socket")
                where.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()


class Proxy:
    """Listens at a free port of loopback, and passes on to `upstream` (`host:port`)."""

    def __init__(self, upstream: str, protocol: Protocol = "raw") -> None:
        self.upstream = upstream
        self.protocol: Protocol = protocol
        self.delay_s = 0.0
        """How long each piece waits, in either direction."""
        self.refuses = False
        """New connections are reset at once."""
        self.is_away = False
        """The server is away, so new connections are reset, too; `accept` and `heal` do not bring it back."""
        self.swallowed: Counter[int] = Counter()
        """Answers held back so far, by the kind of their request."""
        self.delayed = 0
        """Pieces that had to wait so far."""
        self.port = 0
        self._server: asyncio.Server | None = None
        self._mutes: int | None = None
        self._connections: set[Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._watches: list[tuple[int, Callable[[], None]]] = []

    def __repr__(self) -> str:
        return f"<Proxy {self.port} to {self.upstream}, {len(self._connections)} connections>"

    @property
    def address(self) -> str:
        """`host:port` for clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def connections(self) -> int:
        """How many there are."""
        return len(self._connections)

    @property
    def mute(self) -> int:
        """How many connections are mute."""
        return sum(one.is_mute for one in self._connections)

    def in_flight(self, *kinds: int) -> int:
        """Requests of these kinds (of all without any) that have no answer yet, or none that got through."""
        asked = [kind for one in self._connections for kind in one.asked]
        return sum(kind in kinds for kind in asked) if kinds else len(asked)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Proxy]:
        """Listens for the block."""
        self.port = free_port()
        await self.listen()
        try:
            yield self
        finally:
            self.refuses = True
            self.vanish()
            if self._tasks:
                await asyncio.wait(self._tasks)

    async def listen(self) -> None:
        """Accepts connections, unless it does already."""
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, limit=CHUNK_BYTES)

    def vanish(self) -> None:
        """Resets all connections; the host refuses new ones, as if the process had ended, until `listen`."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.cut()

    @contextlib.contextmanager
    def watched(self, kind: int, seen: Callable[[], None]) -> Iterator[None]:
        """In the block `seen` is called for every request of this kind, just before it is passed on."""
        watch = kind, seen
        self._watches.append(watch)
        try:
            yield
        finally:
            self._watches.remove(watch)

    def cut(self) -> int:
        """Resets all connections; how many."""
        cut = list(self._connections)
        for connection in cut:
            connection.cut()
        return len(cut)

    def cut_off(self) -> None:
        """Resets all connections, and every new one until `accept`."""
        self.refuses = True
        self.cut()

    def swallow(self, kind: int = ANY) -> None:
        """From now on a connection goes mute with its next answer to a request of this kind."""
        self._mutes = kind

    def swallow_no_more(self) -> None:
        """No other connection goes mute; those that are stay so."""
        self._mutes = None

    def deliver(self) -> None:
        """Swallows no more, and what was swallowed gets through, late."""
        self._mutes = None
        for connection in self._connections:
            connection.client.writelines(connection.held)
            connection.held.clear()
            connection.is_mute = False

    def drop(self) -> None:
        """Swallows no more; mute connections are cut, and their answers lost for good."""
        self._mutes = None
        for connection in self._connections:
            if connection.is_mute:
                connection.cut()

    def accept(self) -> None:
        """Serves new connections again; other faults go on."""
        self.refuses = False

    def heal(self) -> None:
        """Ends every fault."""
        self.delay_s = 0.0
        self.accept()
        self.drop()

    async def _serve(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        host, _, port = self.upstream.rpartition(":")
        try:
            if self.refuses or self.is_away:
                raise ConnectionRefusedError
            answers, server = await asyncio.open_connection(host, int(port), limit=CHUNK_BYTES)
            if self._server is None or self.is_away:
                server.transport.abort()
                raise ConnectionRefusedError
        except OSError:
            client.transport.abort()
            return
        connection = Connection(self.protocol, client, server)
        self._connections.add(connection)
        on = self._pump(reader, server, lambda data: self._pass_on(connection, data))
        back = self._pump(answers, client, lambda data: self._pass_back(connection, data))
        ways = {asyncio.ensure_future(on), asyncio.ensure_future(back)}
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._connections.discard(connection)
            client.close()
            server.close()
            # the other way ends with its connection, unless it waits for something else
            await asyncio.wait(ways, timeout=CLOSE_S)
            for way in ways:
                way.cancel()

    async def _pump(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, use: Callable[[bytes], None]
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(CHUNK_BYTES):
                if self.delay_s:
                    self.delayed += 1
                    await asyncio.sleep(self.delay_s)
                use(data)
                await sink.drain()

    def _pass_on(self, connection: Connection, data: bytes) -> None:
        for kind in connection.requested(data):
            for watched, seen in list(self._watches):
                if watched == kind:
                    seen()
        connection.server.write(data)

    def _pass_back(self, connection: Connection, data: bytes) -> None:
        for kind, answer in connection.answered(data):
            if self._mutes is not None and self._mutes in (ANY, kind):
                connection.is_mute = True
            if connection.is_mute:
                self.swallowed[kind] += 1
                connection.held.append(answer)
            else:
                connection.client.write(answer)
