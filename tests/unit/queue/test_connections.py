"""The queue's connections are the producer's (tests/unit/producer tests them): each wait has a bound."""

from __future__ import annotations

import asyncio

import pytest

from shared.server.bounds import Bounds
from shared.server.connections import Connections
from tests.fakes.http import connected
from tests.fakes.queues import InMemoryQueueStore
from tests.fakes.virtual_time import until, virtual_time
from tests.unit.queue.world import worker

HEAD = (
    b"POST /queues/q/%b HTTP/1.1\r\nhost: queue\r\n"
    b"content-type: application/json\r\ncontent-length: 20\r\n\r\n"
)


@pytest.mark.parametrize("name", [b"items", b"lease"])
@virtual_time
async def test_a_body_that_does_not_end_gets_a_408_and_occupies_nothing(name: bytes) -> None:
    """A slow sender holds no memory after the time-out."""
    async with worker(InMemoryQueueStore()) as one:
        await one.call("PUT", "q", {})
        connection, wire = connected(one.face, Bounds(header_timeout_s=5, body_timeout_s=5))
        connection.data_received(HEAD % name + b'{"data":')
        held = one.face.inflight.bytes
        await until(lambda: b"HTTP/1.1 408" in wire.written)
        wire.abort()
        await asyncio.sleep(0)

    assert held == len(b'{"data":')
    assert (one.face.inflight.bytes, one.face.inflight.requests) == (0, 0)


@virtual_time
async def test_a_connection_too_many_gets_a_503_unless_it_only_looks() -> None:
    """Orchestrators must still see that the worker lives."""
    async with worker(InMemoryQueueStore()) as one:
        bounds = Bounds(header_timeout_s=5, body_timeout_s=5, connections=Connections(0))
        answers = []
        for path in (b"/queues", b"/livez"):
            connection, wire = connected(one.face, bounds)
            connection.data_received(b"GET %b HTTP/1.1\r\nhost: queue\r\n\r\n" % path)
            await until(lambda wire=wire: b"\r\n\r\n" in wire.written)  # type: ignore[misc]
            answers.append(bytes(wire.written[9:12]))

    assert answers == [b"503", b"200"]


@virtual_time
async def test_a_poll_does_not_count_as_in_flight() -> None:
    """Thousands of clients may wait for items; only what is being read or stored is bounded."""
    async with worker(InMemoryQueueStore()) as one:
        await one.call("PUT", "q", {})
        connection, wire = connected(one.face)
        connection.data_received((HEAD % b"lease") + b'{"wait_s":20}'.ljust(20))
        engine = (await one.queues.find("q")).engine
        await until(lambda: engine.demand.waiting == 1)
        held = one.face.inflight.requests
        wire.abort()

    assert held == 0
