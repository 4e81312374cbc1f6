"""A producer process among hostile clients, which try to use up its memory: bombs and slow senders."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import re
import sys
import time
from collections.abc import AsyncIterator

from tests.integration.test_producer_service import JSON, MIB, Running, producer

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

FRAGMENT = b'{"key":"visitor-1"}'
SLOW_CLIENTS = 300
HEAD = (
    b"POST /fragments HTTP/1.1\r\nhost: producer\r\ncontent-type: application/json\r\n"
    b"content-length: 300000\r\n\r\n"
)


async def assert_accepts_fragments(running: Running) -> None:
    """A well-behaved client is served as usual."""
    answer = await running.client.post("/fragments", content=FRAGMENT, headers=JSON)
    assert answer.status_code == 200, answer.text


@contextlib.asynccontextmanager
async def slow_clients(port: int, begun: bytes) -> AsyncIterator[list[asyncio.StreamReader]]:
    """Connections with an unfinished request on each; yields their readers."""
    clients = [await asyncio.open_connection("127.0.0.1", port) for _ in range(SLOW_CLIENTS)]
    for _, writer in clients:
        writer.write(begun)
    try:
        yield [reader for reader, _ in clients]
    finally:
        for _, writer in clients:
            writer.transport.abort()


async def statuses(readers: list[asyncio.StreamReader]) -> set[bytes]:
    """The statuses of all answers, once the server has closed all connections."""

    async def status_of(reader: asyncio.StreamReader) -> bytes:
        with contextlib.suppress(ConnectionError):
            return (await reader.read())[9:12]
        return b""

    async with asyncio.timeout(60):
        return set(await asyncio.gather(*map(status_of, readers)))


async def inflight_bytes(running: Running) -> float:
    """The metric, as `/metrics` reports it."""
    found = re.search(r"(?m)^baton_inflight_bytes (.+)$", (await running.client.get("/metrics")).text)
    assert found
    return float(found[1])


async def settled_bytes(running: Running) -> float:
    """What is in flight after the dropped uploads have ended, and before any upload times out."""
    deadline = time.monotonic() + 1.0
    held = await inflight_bytes(running)
    while held > 8 * MIB and time.monotonic() < deadline:
        held = await inflight_bytes(running)
    return held


async def test_slow_senders_do_not_use_up_memory_or_connections(
    kafka: str, zookeeper: str, namespace: str
) -> None:
    """300 unfinished bodies, then 300 unfinished headers: other clients are served, and all these end."""
    settings = {"kafka": kafka, "zookeeper": zookeeper, "namespace": namespace, "streams": 1}
    bounds = {"header_timeout_s": 3, "read_timeout_s": 3, "max_inflight_bytes": 16 * MIB}
    async with producer(**settings, **bounds) as running:
        await running.until_ready()
        await assert_accepts_fragments(running)
        before = running.peak_bytes()
        port = running.client.base_url.port
        assert port is not None

        async with slow_clients(port, HEAD + b" " * 200_000) as readers:
            await assert_accepts_fragments(running)
            held = await settled_bytes(running)
            for_bodies = await statuses(readers)
        async with slow_clients(port, HEAD[:-2]) as readers:
            await assert_accepts_fragments(running)
            for_headers = await statuses(readers)
        left = await inflight_bytes(running)
        grown = running.peak_bytes() - before

    assert held <= 8 * MIB
    # in a burst, some find no room before the oldest upload has ended
    assert b"408" in for_bodies
    assert for_bodies <= {b"408", b"429"}
    assert for_headers == {b"408"}
    assert left == 0
    # bytes in flight, a socket buffer for each client, and Python's objects for each connection
    assert grown < 48 * MIB


async def test_bombs_are_rejected_early(kafka: str, zookeeper: str, namespace: str) -> None:
    """50 bodies that decode to a gigabyte each: 413 for all, and memory does not grow."""
    bombs = [
        ("gzip", gzip.compress(bytes(100 * MIB)) * 10),
        ("zstd", zstd.compress(bytes(1000 * MIB))),
    ]
    settings = {"kafka": kafka, "zookeeper": zookeeper, "namespace": namespace, "streams": 1}
    async with producer(**settings) as running:
        await running.until_ready()
        await assert_accepts_fragments(running)
        before = running.peak_bytes()

        answers = await asyncio.gather(
            *(
                running.client.post("/fragments", content=bomb, headers=JSON | {"content-encoding": coding})
                for coding, bomb in bombs * 25
            )
        )
        await assert_accepts_fragments(running)
        grown = running.peak_bytes() - before

    assert {answer.status_code for answer in answers} == {413}
    assert grown < 24 * MIB
