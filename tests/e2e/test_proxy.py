"""The proxy does what chaos runs rely on: it cuts, delays, refuses and swallows on command."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import pytest

from tests.e2e.proxy import END_TXN, PRODUCE, Frames, Proxy
from tests.waiting import DEADLINE_S, until

DELAY_S = 0.2


def frame(kind: int, text: bytes) -> bytes:
    """A request as Kafka frames it: length, number of the request, the rest."""
    body = kind.to_bytes(2, "big") + text
    return len(body).to_bytes(4, "big") + body


class Echo:
    """A server that answers every frame by itself, and remembers the texts."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        frames = Frames()
        with contextlib.suppress(OSError):
            while data := await reader.read(1000):
                for one in frames.feed(data):
                    self.heard.append(one[6:])
                    writer.write(one)
        with contextlib.suppress(OSError):
            writer.close()
            await writer.wait_closed()


class Client:
    """One connection to a proxy."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer, self._frames = reader, writer, Frames()

    def ask(self, kind: int, text: bytes) -> None:
        """Sends a request."""
        self._writer.write(frame(kind, text))

    async def answer(self) -> bytes:
        """The next answer's text."""
        async with asyncio.timeout(DEADLINE_S):
            while not (found := self._frames.feed(await self._piece())):
                pass
        (one,) = found
        return one[6:]

    async def _piece(self) -> bytes:
        data = await self._reader.read(1000)
        if not data:
            raise ConnectionResetError
        return data

    def close(self) -> None:
        """Ends it."""
        self._writer.close()


class Wire:
    """An echo behind a proxy, and clients of it."""

    def __init__(self, proxy: Proxy, echo: Echo) -> None:
        self.proxy, self.echo = proxy, echo
        self._clients: list[Client] = []

    async def connect(self) -> Client:
        """One more client."""
        client = Client(*await asyncio.open_connection("127.0.0.1", self.proxy.port))
        self._clients.append(client)
        return client

    async def swallowed(self, kind: int) -> None:
        """Returns when an answer to such a request was held back."""
        await until(
            lambda: bool(self.proxy.swallowed[kind]),
            lambda: f"{self.proxy} has swallowed {self.proxy.swallowed}",
        )

    def close(self) -> None:
        """Ends the clients."""
        for client in self._clients:
            client.close()


@pytest.fixture
async def wire() -> AsyncIterator[Wire]:
    """An echo behind a proxy that knows Kafka's frames."""
    echo = Echo()
    server = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with Proxy(f"127.0.0.1:{port}", "kafka").running() as proxy:
        found = Wire(proxy, echo)
        yield found
        found.close()
    server.close()
    await server.wait_closed()


async def test_requests_and_answers_pass(wire: Wire) -> None:
    """Without a fault a proxy is transparent, also for a frame larger than one read."""
    client = await wire.connect()
    large = b"x" * 600

    client.ask(PRODUCE, large)

    assert await client.answer() == large
    assert (wire.proxy.connections, wire.proxy.in_flight()) == (1, 0)


async def test_a_cut_ends_all_connections_and_no_later_one(wire: Wire) -> None:
    """Open connections end by a reset; a new one is served."""
    clients = [await wire.connect(), await wire.connect()]
    for client in clients:
        client.ask(PRODUCE, b"before")
        assert await client.answer() == b"before"

    assert wire.proxy.cut() == 2

    for client in clients:
        with pytest.raises(ConnectionError):
            await client.answer()
    again = await wire.connect()
    again.ask(PRODUCE, b"after")
    assert await again.answer() == b"after"


async def test_a_refusing_proxy_serves_no_client_until_it_is_healed(wire: Wire) -> None:
    """It looks like a server that is down."""
    wire.proxy.refuses = True
    refused = await wire.connect()
    refused.ask(PRODUCE, b"refused")
    with pytest.raises(ConnectionError):
        await refused.answer()

    wire.proxy.heal()

    served = await wire.connect()
    served.ask(PRODUCE, b"served")
    assert await served.answer() == b"served"
    assert wire.echo.heard == [b"served"]


async def test_a_server_that_was_away_comes_back_with_the_other_faults_of_its_proxy(wire: Wire) -> None:
    """Two faults at a time strike one proxy: neither ends the other one."""
    wire.proxy.swallow(END_TXN)
    wire.proxy.is_away = True
    wire.proxy.cut_off()
    wire.proxy.accept()
    away = await wire.connect()
    away.ask(PRODUCE, b"away")
    with pytest.raises(ConnectionError):
        await away.answer()

    wire.proxy.is_away = False

    client = await wire.connect()
    client.ask(PRODUCE, b"back")
    assert await client.answer() == b"back"
    client.ask(END_TXN, b"commit")
    await wire.swallowed(END_TXN)


async def test_a_port_that_has_vanished_refuses_connections_until_it_listens_again(wire: Wire) -> None:
    """It looks like a process that has ended."""
    client = await wire.connect()
    wire.proxy.vanish()
    with pytest.raises(ConnectionError):
        await client.answer()
    with pytest.raises(ConnectionRefusedError):
        await wire.connect()

    await wire.proxy.listen()

    again = await wire.connect()
    again.ask(PRODUCE, b"again")
    assert await again.answer() == b"again"


async def test_a_delay_holds_each_direction(wire: Wire) -> None:
    """A round trip takes it twice."""
    client = await wire.connect()
    wire.proxy.delay_s = DELAY_S
    begun = time.monotonic()

    client.ask(PRODUCE, b"slow")

    assert await client.answer() == b"slow"
    assert time.monotonic() - begun >= 2 * DELAY_S
    assert wire.proxy.delayed == 2


async def test_only_the_answers_from_a_commits_on_are_swallowed(wire: Wire) -> None:
    """Requests go through, answers before it too, and other connections are left alone."""
    client, other = await wire.connect(), await wire.connect()
    wire.proxy.swallow(END_TXN)
    client.ask(PRODUCE, b"first")
    client.ask(END_TXN, b"commit")
    client.ask(PRODUCE, b"later")
    other.ask(PRODUCE, b"other")

    assert await client.answer() == b"first"
    assert await other.answer() == b"other"
    await wire.swallowed(PRODUCE)
    assert wire.echo.heard.count(b"commit") == 1
    assert dict(wire.proxy.swallowed) == {END_TXN: 1, PRODUCE: 1}


async def test_swallowed_answers_may_come_late(wire: Wire) -> None:
    """In their order, and what follows passes again."""
    client = await wire.connect()
    wire.proxy.swallow(END_TXN)
    client.ask(END_TXN, b"commit")
    await wire.swallowed(END_TXN)

    wire.proxy.deliver()

    assert await client.answer() == b"commit"
    client.ask(END_TXN, b"another")
    assert await client.answer() == b"another"


async def test_dropped_answers_never_come(wire: Wire) -> None:
    """The mute connection ends, the others stay."""
    client, other = await wire.connect(), await wire.connect()
    wire.proxy.swallow(END_TXN)
    client.ask(END_TXN, b"commit")
    await wire.swallowed(END_TXN)

    wire.proxy.drop()

    with pytest.raises(ConnectionError):
        await client.answer()
    other.ask(END_TXN, b"other")
    assert await other.answer() == b"other"


async def test_a_request_is_seen_before_it_is_passed_on(wire: Wire) -> None:
    """A fault can strike while exactly this request is under way."""
    client = await wire.connect()
    seen: list[tuple[int, list[bytes]]] = []

    with wire.proxy.watched(
        END_TXN, lambda: seen.append((wire.proxy.in_flight(END_TXN), [*wire.echo.heard]))
    ):
        client.ask(PRODUCE, b"not this one")
        assert await client.answer() == b"not this one"
        client.ask(END_TXN, b"this one")
        assert await client.answer() == b"this one"
    client.ask(END_TXN, b"nor this")
    assert await client.answer() == b"nor this"

    assert seen == [(1, [b"not this one"])]
