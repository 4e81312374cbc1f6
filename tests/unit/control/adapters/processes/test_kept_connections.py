"""The connections to members stay open, and whatever answers there can do no more than not answer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable

import pytest
import uvloop

from services.control.adapters.processes import kept_connections
from services.control.adapters.processes.kept_connections import KeptConnections

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
CLOSES = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"


class Face:
    """A server that gives its `answers` in turn, the last one for ever."""

    def __init__(self, answers: Iterable[bytes]) -> None:
        self._answers = list(answers)
        self.requests: list[bytes] = []
        self.connections = 0
        self.address = ""
        self._served: list[tuple[asyncio.StreamWriter, asyncio.Task[None] | None]] = []

    async def hang_up(self) -> None:
        """Closes all connections."""
        for writer, _ in self._served:
            writer.close()
        await asyncio.gather(*(task for _, task in self._served if task is not None))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._served.append((writer, asyncio.current_task()))
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                self.requests.append(await reader.readuntil(b"\r\n\r\n"))
                writer.write(self._answers.pop(0) if len(self._answers) > 1 else self._answers[0])
        writer.close()


@contextlib.asynccontextmanager
async def face(*answers: bytes) -> AsyncIterator[Face]:
    """A face on loopback, until the end of the block."""
    found = Face(answers)
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield found
    finally:
        server.close()
        await found.hang_up()


@pytest.fixture
async def asked() -> AsyncIterator[KeptConnections]:
    async with KeptConnections() as connections:
        yield connections


async def test_a_connection_serves_one_request_after_another(asked: KeptConnections) -> None:
    """Also for several URLs of an address."""
    async with face(OK) as there:
        found = [await asked.get(f"{there.address}/a/{path}") for path in ("status", "plan", "status?x=1")]

        assert found == [b"{}"] * 3
        assert there.connections == 1
        assert there.requests[2].startswith(b"GET /a/status?x=1 HTTP/1.1\r\n")


def test_it_works_on_the_loop_that_control_runs_on() -> None:
    """uvloop's transports have other types than those of asyncio."""

    async def is_answered() -> bool:
        async with face(OK) as there, KeptConnections() as asked:
            return [await asked.get(there.address) for _ in range(2)] == [b"{}"] * 2

    assert uvloop.run(is_answered())


async def test_requests_at_one_time_have_connections_of_their_own(asked: KeptConnections) -> None:
    """So a slow answer delays no other; all these connections are used again."""
    async with face(OK) as there:
        for _ in range(2):
            urls = [f"{there.address}/{n}" for n in range(5)]
            assert await asyncio.gather(*map(asked.get, urls)) == [b"{}"] * 5

        assert there.connections == 5


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"HTTP/1.1 503 No\r\nContent-Length: 2\r\n\r\n{}", id="503"),
        pytest.param(b"HTTP/1.1 302 There\r\nLocation: /there\r\nContent-Length: 0\r\n\r\n", id="redirect"),
        pytest.param(b"HTTP/1.1 101 So\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nxx", id="upgrade"),
        pytest.param(b"SSH-2.0-OpenSSH\r\n", id="not HTTP"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n0123456789", id="more than it says"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 200\r\n\r\n" + b"x" * 200, id="too long"),
    ],
)
async def test_a_bad_answer_is_none_and_harms_no_later_one(
    asked: KeptConnections, answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What follows such an answer on its connection is nobody's answer."""
    monkeypatch.setattr(kept_connections, "MOST_BYTES", 100)
    async with face(answer, OK) as there:
        first = await asked.get(there.address)

        assert first in (None, b"012345678")
        assert await asked.get(there.address) == b"{}"
        assert [request.split()[1] for request in there.requests] == [b"/", b"/"]


async def test_without_an_answer_in_time_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer that comes too late is not that of the next request."""
    monkeypatch.setattr(kept_connections, "ANSWER_TIMEOUT_S", 0.1)
    half = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nla"
    async with face(half, OK) as there, KeptConnections() as asked:
        assert await asked.get(there.address) is None
        assert await asked.get(there.address) == b"{}"
        assert there.connections == 2


async def test_a_connection_that_the_server_closes_is_replaced(asked: KeptConnections) -> None:
    """Whether it says so, or only does so."""
    async with face(CLOSES, OK) as there:
        assert [await asked.get(there.address) for _ in range(3)] == [b"{}"] * 3
        assert there.connections == 2


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:1/status",
        "http://127.0.0.1:99999/status",
        "ftp://127.0.0.1/status",
        "http:///status",
        "status",
        "http://127.0.0.1:1/a b",
        "http://127.0.0.1:1/\x01",
        "http://host\r\nX: y/status",
        "http://[::1/status",
        f"http://{'x' * 70}.invalid/status",
        "http://ä.invalid/status",
    ],
)
async def test_an_impossible_address_has_no_answer(asked: KeptConnections, url: str) -> None:
    """Members register their addresses themselves, so anything may stand there."""
    assert await asked.get(url) is None
