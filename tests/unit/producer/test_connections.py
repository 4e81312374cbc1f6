"""The bound on the number of connections, over real ones."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import resource

import pytest

from services.producer.__main__ import OTHER_FILES, possible_connections
from services.producer.http.pipeline import MAX_REFUSED
from tests.unit.producer.wire import PATIENT, request, serving

FRAGMENT = b'{"key":"visitor-1"}'
FEW = dataclasses.replace(PATIENT, max_connections=3)


@pytest.mark.parametrize("posted", [b"", request(FRAGMENT)], ids=["silent", "posts"])
async def test_a_connection_beyond_the_bound_gets_a_503(posted: bytes) -> None:
    """At once, with a time to retry, and what it sends is not stored; the others go on."""
    async with serving(FEW) as server, contextlib.AsyncExitStack() as clients:
        within = [await clients.enter_async_context(server.connection()) for _ in range(3)]
        for client in within:
            client.send(request(FRAGMENT))
            assert (await client.answer()).status == 200
        async with server.connection() as beyond:
            beyond.send(posted)
            refused = await beyond.answer()
            rest = await beyond.rest()
        within[0].send(request(FRAGMENT))
        goes_on = await within[0].answer()
        await clients.aclose()
        while server.protocols[0].connections:  # noqa: ASYNC110  uvicorn offers nothing to wait for
            await asyncio.sleep(0.002)
        async with server.connection() as later:
            later.send(request(FRAGMENT))
            accepted = await later.answer()

    assert (refused.status, refused.body["type"]) == (503, "urn:baton:too-many-connections")
    assert (refused.headers["retry-after"], refused.headers["connection"], rest) == ("1", "close", b"")
    assert (goes_on.status, accepted.status, len(server.stored)) == (200, 200, 5)
    assert (server.metrics.requests[503], server.metrics.refused["too-many-connections"]) == (1, 1)


async def test_a_flood_of_connections_is_cut_off() -> None:
    """Refused ones that do not end by themselves are bounded too: the next ones get no answer."""
    async with serving(FEW) as server, contextlib.AsyncExitStack() as clients:
        for _ in range(3 + 2 * MAX_REFUSED):
            await clients.enter_async_context(server.connection())
        while len(server.protocols) < 3 + 2 * MAX_REFUSED:  # noqa: ASYNC110
            await asyncio.sleep(0.002)
        open_ones = len(server.protocols[0].connections)
        last = await clients.enter_async_context(server.connection())
        rest = await last.rest()

    assert open_ones <= 3 + MAX_REFUSED
    assert rest == b""


@pytest.mark.parametrize(
    ("open_files", "possible"),
    [(1_024, 1_024 - OTHER_FILES), (9_999, 4_096), (resource.RLIM_INFINITY, 4_096)],
)
def test_connections_leave_files_for_the_rest_of_the_process(
    monkeypatch: pytest.MonkeyPatch, open_files: int, possible: int
) -> None:
    """Without one, a producer whose Kafka connection breaks could not open another."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (open_files, open_files))

    assert possible_connections(4_096) == possible
