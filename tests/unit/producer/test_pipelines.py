"""Clients that pipeline without end, do not read their answers, or disconnect between their requests.

Over real connections. Tests look into the server's connection for what waits there; each wait has a deadline.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Callable

import pytest
import uvloop

from shared.server.bounds import Bounds
from shared.server.connection import HttpConnection
from shared.server.queue import MAX_WAITING
from shared.service.inflight import REQUEST_BYTES
from tests.unit.producer.wire import Server, Stalled, request, serving
from tests.waiting import DEADLINE_S

FRAGMENT = b'{"key":"visitor-1"}'
ALIVE = b"GET /livez HTTP/1.1\r\nhost: producer\r\n\r\n"
IMPATIENT = Bounds(header_timeout_s=DEADLINE_S, body_timeout_s=0.1)
ONE_READ = 256 * 1024
"""The most that the event loop reads at once."""


async def until(condition: Callable[[], object]) -> None:
    """Returns as soon as the condition is true."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110  uvicorn offers nothing to wait for
            await asyncio.sleep(0.002)


def is_lost(connection: HttpConnection) -> bool:
    """Whether the server has dropped the connection."""
    return connection not in connection._state.connections


def numbered(count: int) -> bytes:
    """A request with `count` fragments; its answer has the same number."""
    return request(b"[" + b",".join([FRAGMENT] * count) + b"]")


async def test_pipelining_without_end_is_answered_up_to_a_bound() -> None:
    """Of 30,000 requests behind one that waits, 64 are accepted and answered in order; then it ends."""
    sink = Stalled()
    async with serving(sink=sink) as server, raw_client(server) as client:
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(client, numbered(1))
        await sink.waiting.wait()
        sending = asyncio.create_task(
            send_all(client, b"".join(map(numbered, range(2, 21))) + ALIVE * 30_000)
        )
        connection = server.connections[0]
        await until(lambda: connection.requests.waiting)
        queued = len(connection.requests.waiting)
        sink.release.set()
        answers = (await everything(client)).split(b"HTTP/1.1 ")[1:]
        await sending

    assert queued == MAX_WAITING
    assert len(answers) == 1 + MAX_WAITING
    assert all(answer.startswith(b"200 ") for answer in answers)
    assert [b'"accepted":%d,' % count in answers[count - 1] for count in range(1, 21)] == [True] * 20
    assert [b"connection: close" in answer for answer in answers] == [False] * MAX_WAITING + [True]


LARGE = request(FRAGMENT + b" " * 20_000)


@pytest.mark.parametrize(
    ("pieces", "count", "max_requests", "max_bytes"),
    [([request(FRAGMENT) * 30] * 3, 90, 60, ONE_READ), ([LARGE] * 200, 200, MAX_WAITING, ONE_READ)],
    ids=["many", "large"],
)
async def test_nothing_is_read_while_requests_are_queued(
    pieces: list[bytes], count: int, max_requests: int, max_bytes: int
) -> None:
    """Of three batches of requests one or two are queued; of 4 MB of bodies one read; all are answered."""
    sink = Stalled()
    async with serving(sink=sink) as server, server.connection() as client:
        client.send(request(FRAGMENT))
        await sink.waiting.wait()
        sending = asyncio.create_task(client.send_apart(*pieces))
        connection = server.connections[0]
        await until(lambda: connection.requests.waiting)
        queued, held, statuses = [], [], []
        for _ in range(1 + count):
            queued.append(len(connection.requests.waiting))
            held.append(sum(one.size for one in connection.requests.waiting))
            sink.release.set()
            statuses.append((await client.answer()).status)
        await sending

    assert statuses == [200] * (1 + count)
    assert 0 < max(queued) <= max_requests
    assert 0 < max(held) <= max_bytes
    assert len(server.stored) == 1 + count


async def test_bodies_behind_an_earlier_request_count_as_in_flight() -> None:
    """They may fill a quarter of the bound; the next one gets a 429 in its turn and ends the connection."""
    sink, room = Stalled(), 200_000
    async with serving(sink=sink, max_inflight_bytes=room) as server, server.connection() as client:
        client.send(request(FRAGMENT))
        await sink.waiting.wait()
        client.send(LARGE * 30)
        connection = server.connections[0]
        await until(lambda: len(connection.requests.waiting) > 1)
        waiting = len(connection.requests.waiting)
        held = server.door.inflight_bytes
        sink.release.set()
        answers = [await client.answer() for _ in range(1 + waiting)]
        rest = await client.rest()

    assert [answer.status for answer in answers] == [200] * waiting + [429]
    assert (answers[-1].headers["retry-after"], answers[-1].headers["connection"]) == ("1", "close")
    assert rest == b""
    assert 20_000 < held <= room // 4
    assert len(server.stored) == waiting
    assert (server.metrics.requests[429], server.metrics.refused["overloaded"]) == (1, 1)
    assert server.door.inflight_bytes == 0


async def test_a_flood_of_small_requests_behind_others_is_bounded() -> None:
    """Over many connections: what waits counts with its overhead, and nothing of it stays in the end."""
    sink, room = Stalled(), 1_000_000
    async with serving(sink=sink, max_inflight_bytes=room) as server, contextlib.AsyncExitStack() as clients:
        for _ in range(20):
            client = await clients.enter_async_context(server.connection())
            client.send(request(FRAGMENT) * 40)
        await until(
            lambda: len(server.connections) == 20 and all(one.requests.waiting for one in server.connections)
        )
        waiting = sum(len(connection.requests.waiting) for connection in server.connections)
        for connection in server.connections:
            connection.outlet.transport.abort()
        await until(lambda: all(map(is_lost, server.connections)))
        left = server.door.inflight
        sink.release.set()
        await until(lambda: not left.requests)

    # one of each connection is refused
    assert waiting <= room // 4 // REQUEST_BYTES + 20
    assert (left.bytes, left.requests, left.waiting_bytes) == (0, 0, 0)


MANY_REJECTED = b"[" + b",".join([b"1"] * 300) + b"]"
"""Its answer has 36 KB: more than the small buffers of `raw_client`, less than what pauses an app."""
CLOSING = {
    "connection: close": (request(MANY_REJECTED, "connection: close"), b""),
    "HTTP/1.0": (request(MANY_REJECTED).replace(b"HTTP/1.1", b"HTTP/1.0"), b""),
    "a refusal": (request(MANY_REJECTED), b"nonsense\r\n\r\n"),
    "a half-close": (request(MANY_REJECTED), None),
}


@pytest.mark.parametrize("how", CLOSING)
async def test_a_closing_connection_does_not_wait_for_a_client_that_does_not_read(how: str) -> None:
    """Whatever closes it, the client may read the rest for as long as a body may take, but no longer."""
    first, then = CLOSING[how]
    async with serving(IMPATIENT) as server, raw_client(server) as client:
        loop = asyncio.get_running_loop()
        connection = server.connections[0]
        await loop.sock_sendall(client, first)
        if then is None:
            client.shutdown(socket.SHUT_WR)
        elif then:
            await until(lambda: connection.outlet.transport.get_write_buffer_size())
            await loop.sock_sendall(client, then)
        await until(lambda: is_lost(connection))
        taken = await everything(client)

    assert 0 < len(taken) < 30_000


async def test_a_stop_does_not_wait_for_a_client_that_does_not_read() -> None:
    """An idle connection whose last answer was not read ends while the server stops."""
    async with serving(IMPATIENT) as server, raw_client(server) as client:
        connection = server.connections[0]
        await asyncio.get_running_loop().sock_sendall(client, request(MANY_REJECTED))
        await until(lambda: connection.outlet.transport.get_write_buffer_size())
        kept = client.dup()

    assert is_lost(connection)
    kept.close()


@pytest.mark.parametrize("is_cut_off", [True, False])
def test_a_connection_lost_between_its_requests_leaves_nothing_behind(
    caplog: pytest.LogCaptureFixture, is_cut_off: bool
) -> None:
    """Aborted by us or by the client: what waits then never starts, and nothing more is written."""
    sink = Stalled()
    answered = 0 if is_cut_off else 2  # the first answer is lost on the way, only the second one fails

    async def lose() -> HttpConnection:
        async with serving(sink=sink) as server, server.connection() as client:
            client.send(request(FRAGMENT) * 10)
            await sink.waiting.wait()
            connection = server.connections[0]
            await until(lambda: connection.requests.waiting)
            exchanges = [connection.requests.running, *connection.requests.waiting]
            if is_cut_off:
                connection.outlet.transport.abort()
                await until(lambda: is_lost(connection))
            else:
                client.writer.transport.abort()
            sink.release.set()
            await until(lambda: is_lost(connection) and not connection._state.tasks)
            assert [one is not None and one.is_lost for one in exchanges[answered:]] == [True] * (
                10 - answered
            )
            return connection

    with caplog.at_level(logging.INFO):
        connection = uvloop.run(lose())  # as in production: asyncio's loop ignores writes after a close

    assert not connection.requests.waiting
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert sum(map(len, sink.logs)) == max(1, answered)


@contextlib.asynccontextmanager
async def raw_client(server: Server) -> AsyncIterator[socket.socket]:
    """A connection with small buffers on both sides; only the test reads from it."""
    with socket.socket() as client:
        client.setblocking(False)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", server.port))
        await until(lambda: server.connections and server.connections[0].outlet)
        ours = server.connections[0].outlet.transport.get_extra_info("socket")
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
        yield client


async def send_all(client: socket.socket, data: bytes) -> None:
    """Sends the data, or as much of it as the server reads."""
    with contextlib.suppress(ConnectionError):
        await asyncio.get_running_loop().sock_sendall(client, data)


async def everything(client: socket.socket) -> bytes:
    """Everything that the connection has sent, and sends until it ends."""
    taken = b""
    async with asyncio.timeout(DEADLINE_S):
        with contextlib.suppress(ConnectionError):
            while piece := await asyncio.get_running_loop().sock_recv(client, 65_536):
                taken += piece
    return taken
