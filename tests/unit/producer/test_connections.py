"""The bound on the number of connections, over real ones."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
import json
import resource
import urllib.error
import urllib.request
import weakref
from collections.abc import Callable

import pytest

from services.producer.__main__ import Producer
from services.producer.settings import ProducerSettings
from shared.server.bounds import Bounds
from shared.server.connections import OTHER_FILES, RESERVE, Connections, possible_connections
from tests.servers import free_port
from tests.unit.producer.wire import PATIENT, Connection, Server, request, serving
from tests.waiting import DEADLINE_S

FRAGMENT = b'{"key":"visitor-1"}'
MOST = 3


def few() -> Bounds:
    """Bounds with room for MOST connections."""
    return dataclasses.replace(PATIENT, connections=Connections(MOST))


def look(path: str, method: str = "GET") -> bytes:
    """A request without a body."""
    return f"{method} {path} HTTP/1.1\r\nhost: producer\r\n\r\n".encode()


async def until(condition: Callable[[], object]) -> None:
    """Returns as soon as the condition is true."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110  uvicorn offers nothing to wait for
            await asyncio.sleep(0.002)


async def connect(server: Server, clients: contextlib.AsyncExitStack, count: int) -> list[Connection]:
    """So many more connections, which the server knows."""
    known = len(server.connections)
    opened = [await clients.enter_async_context(server.connection()) for _ in range(count)]
    await until(lambda: len(server.connections) == known + count)
    return opened


async def test_a_connection_beyond_the_bound_gets_a_503() -> None:
    """With a time to retry, and nothing of it is stored; the others go on, and later there is room again."""
    async with serving(few()) as server, contextlib.AsyncExitStack() as clients:
        within = await connect(server, clients, MOST)
        for client in within:
            client.send(request(FRAGMENT))
            assert (await client.answer()).status == 200
        async with server.connection() as beyond:
            beyond.send(request(FRAGMENT + b" " * 300_000, "origin: https://example.com") * 2)
            refused = await beyond.answer()
            rest = await beyond.rest()
        within[0].send(request(FRAGMENT))
        goes_on = await within[0].answer()
        await clients.aclose()
        await until(lambda: not server.connections[0]._state.connections)
        async with server.connection() as later:
            later.send(request(FRAGMENT))
            accepted = await later.answer()

    assert (refused.status, refused.body["type"]) == (503, "urn:baton:too-many-connections")
    assert (refused.headers["retry-after"], refused.headers["connection"], rest) == ("1", "close", b"")
    assert "access-control-allow-origin" in refused.headers  # else a page could not read the answer
    assert (goes_on.status, accepted.status, len(server.stored)) == (200, 200, 5)
    assert (server.metrics.requests[503], server.metrics.refused["too-many-connections"]) == (1, 1)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        *(("GET", path, 200) for path in ("/livez", "/readyz", "/metrics", "/status")),
        *(("HEAD", "/livez", 200), ("POST", "/livez", 503), ("GET", "/table", 503), ("GET", "/", 503)),
    ],
)
async def test_probes_are_answered_beyond_the_bound(method: str, path: str, status: int) -> None:
    """Overload must not look like a broken producer, which an orchestrator would kill; one answer each."""
    async with serving(few()) as server, contextlib.AsyncExitStack() as clients:
        await connect(server, clients, MOST)
        async with server.connection() as beyond:
            beyond.send(look(path, method) + look("/livez"))
            received = await beyond.rest()
        await until(lambda: len(server.connections[0]._state.connections) == MOST)

    assert received.startswith(b"HTTP/1.1 %d " % status)
    assert (received.count(b"HTTP/1.1 "), received.lower().count(b"connection: close")) == (1, 1)
    assert server.metrics.refused["too-many-connections"] == (status == 503)


async def test_an_ended_connection_is_freed_without_a_garbage_collection() -> None:
    """Collections are rare in a producer, and a crowd may send thousands of connections a second."""
    async with serving(few()) as server, contextlib.AsyncExitStack() as clients:
        await connect(server, clients, MOST)
        gc.disable()
        clients.callback(gc.enable)
        async with server.connection() as beyond:
            beyond.send(request(FRAGMENT))
            await beyond.rest()
        ended = weakref.ref(server.connections.pop())
        await until(lambda: ended() is None)


async def test_nobody_can_occupy_the_reserve() -> None:
    """A new connection beyond the bound displaces the oldest, so the number of open ones is bounded."""
    async with serving(few()) as server, contextlib.AsyncExitStack() as clients:
        silent = await connect(server, clients, MOST + RESERVE + 20)
        (probe,) = await connect(server, clients, 1)
        probe.send(look("/readyz"))
        answer = await probe.answer()
        await until(lambda: len(server.connections[0]._state.connections) <= MOST + RESERVE)
        ends = await asyncio.gather(*(client.rest() for client in silent[MOST : MOST + 21]))

    assert answer.status == 200
    assert ends == [b""] * 21
    assert server.metrics.refused["too-many-connections"] == 21


async def test_listeners_share_the_bound() -> None:
    """Clients of the public port fill it; the private port then still serves probes and `/metrics`."""
    settings = ProducerSettings(port=free_port(), private_port=free_port(), max_connections=MOST)

    def status(port: int | None, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=DEADLINE_S) as answer:
                return answer.status, ""
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)["type"].removeprefix("urn:baton:")

    async def ask(port: int | None, path: str) -> tuple[int, str]:
        return await asyncio.to_thread(status, port, path)

    async with Producer(settings)._listeners(), contextlib.AsyncExitStack() as clients:
        before = await ask(settings.private_port, "/try")
        for _ in range(MOST):
            _, writer = await asyncio.open_connection("127.0.0.1", settings.port)
            clients.callback(writer.close)
        full = [await ask(port, "/try.js") for port in (settings.port, settings.private_port)]
        alive = [await ask(port, "/livez") for port in (settings.port, settings.private_port)]
        metrics = [await ask(port, "/metrics") for port in (settings.port, settings.private_port)]

    assert before == (200, "")
    assert full == [(503, "too-many-connections")] * 2
    assert alive == [(200, "")] * 2
    assert metrics == [(404, "not-found"), (200, "")]


@pytest.mark.parametrize(
    ("open_files", "listeners", "possible"),
    [
        (1_024, 1, 1_024 - OTHER_FILES - RESERVE),
        (1_024, 2, 1_024 - OTHER_FILES - 2 * RESERVE),
        (9_999, 1, 4_096),
        (resource.RLIM_INFINITY, 1, 4_096),
        (100, 2, 1),
    ],
)
def test_connections_leave_files_for_the_rest_of_the_process(
    monkeypatch: pytest.MonkeyPatch, open_files: int, listeners: int, possible: int
) -> None:
    """Without one, a producer whose Kafka connection breaks could not open another."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (open_files, open_files))

    assert possible_connections(4_096, listeners) == possible
