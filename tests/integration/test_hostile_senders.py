"""A producer process among clients that would hold its memory and its places: bombs, and slow senders."""

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


async def assert_takes_fragments(running: Running) -> None:
    """Somebody who behaves is answered as if there were nobody else."""
    answer = await running.client.post("/fragments", content=FRAGMENT, headers=JSON)
    assert answer.status_code == 200, answer.text


@contextlib.asynccontextmanager
async def slow_clients(port: int, begun: bytes) -> AsyncIterator[list[asyncio.StreamReader]]:
    """Connections on each of which a request was begun; what the server says to each can be read."""
    clients = [await asyncio.open_connection("127.0.0.1", port) for _ in range(SLOW_CLIENTS)]
    for _, writer in clients:
        writer.write(begun)
    try:
        yield [reader for reader, _ in clients]
    finally:
        for _, writer in clients:
            writer.transport.abort()


async def statuses(readers: list[asyncio.StreamReader]) -> set[bytes]:
    """What each was told, once the server has closed them all."""

    async def last_words(reader: asyncio.StreamReader) -> bytes:
        with contextlib.suppress(ConnectionError):
            return (await reader.read())[9:12]
        return b""

    async with asyncio.timeout(60):
        return set(await asyncio.gather(*map(last_words, readers)))


async def inflight_bytes(running: Running) -> float:
    """What `/metrics` says."""
    found = re.search(r"(?m)^baton_inflight_bytes (.+)$", (await running.client.get("/metrics")).text)
    assert found
    return float(found[1])


async def settled_bytes(running: Running) -> float:
    """What is in flight once those have left that were given up a moment ago, before any is timed out."""
    deadline = time.monotonic() + 1.0
    held = await inflight_bytes(running)
    while held > 8 * MIB and time.monotonic() < deadline:
        held = await inflight_bytes(running)
    return held


async def test_slow_senders_hold_neither_memory_nor_a_place(
    kafka: str, zookeeper: str, namespace: str
) -> None:
    """300 bodies that stop before their end, then 300 headers: others are served, and all are ended."""
    settings = {"kafka": kafka, "zookeeper": zookeeper, "namespace": namespace, "streams": 1}
    bounds = {"header_timeout_s": 3, "read_timeout_s": 3, "max_inflight_bytes": 16 * MIB}
    async with producer(**settings, **bounds) as running:
        await running.until_ready()
        await assert_takes_fragments(running)
        before = running.peak_bytes()
        port = running.client.base_url.port
        assert port is not None

        async with slow_clients(port, HEAD + b" " * 200_000) as readers:
            await assert_takes_fragments(running)
            held = await settled_bytes(running)
            told = await statuses(readers)
        async with slow_clients(port, HEAD[:-2]) as readers:
            await assert_takes_fragments(running)
            told_early = await statuses(readers)
        left = await inflight_bytes(running)
        grown = running.peak_bytes() - before

    assert held <= 8 * MIB
    # where they come in one burst, some find the room full before the oldest has left it
    assert b"408" in told
    assert told <= {b"408", b"429"}
    assert told_early == {b"408"}
    assert left == 0
    # what is held, a socket's buffer for each client, and what Python keeps for a connection
    assert grown < 48 * MIB


async def test_bombs_are_given_up_early(kafka: str, zookeeper: str, namespace: str) -> None:
    """50 bodies that decode to a gigabyte each: 413 for all, and memory does not grow."""
    bombs = [
        ("gzip", gzip.compress(bytes(100 * MIB)) * 10),
        ("zstd", zstd.compress(bytes(1000 * MIB))),
    ]
    settings = {"kafka": kafka, "zookeeper": zookeeper, "namespace": namespace, "streams": 1}
    async with producer(**settings) as running:
        await running.until_ready()
        await assert_takes_fragments(running)
        before = running.peak_bytes()

        answers = await asyncio.gather(
            *(
                running.client.post("/fragments", content=bomb, headers=JSON | {"content-encoding": coding})
                for coding, bomb in bombs * 25
            )
        )
        await assert_takes_fragments(running)
        grown = running.peak_bytes() - before

    assert {answer.status_code for answer in answers} == {413}
    assert grown < 24 * MIB
