"""A steady load as a process: fragments at a limited rate, spread evenly over the streams of a Baton.

`python -m bench.steady TARGET NAMESPACE RATE BYTES…` has one size per stream, about what its open sessions
hold at any time. It sends that much at once, then fragments of `FRAGMENT_BYTES` at the rate until it is
stopped. Sessions take turns, and each ends with its 10th fragment. After a delay it does not catch up.
The target is the address of a broker, or the URL of a producer, which gets arrays.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import httpx
from aiokafka import AIOKafkaProducer

from shared.model.names import Names
from shared.model.routing import StreamTable, initial_table

FRAGMENT_BYTES = 1_000
PER_SESSION = 10
TICK_S = 0.01
"""Interval of sending: small batches, as over HTTP."""
AT_ONCE = 1_000
"""Fragments in flight while filling the streams."""

Fragment = tuple[int, bytes, bytes]
"""Stream, key and value."""
Post = Callable[[list[Fragment]], Awaitable[list[asyncio.Future[object]]]]
"""Sends fragments; returns what to await for those that are not stored yet."""


def lanes_for(size: int) -> int:
    """The number of open sessions that hold about `size` bytes: on average half of each has been sent."""
    return max(1, size * 2 // (PER_SESSION - 1) // FRAGMENT_BYTES)


def keys_of(table: StreamTable, stream: int) -> Iterator[str]:
    """An endless series of keys that belong to the stream."""
    for number in itertools.count():
        key = f"visitor-{number}"
        if table.stream_for(key.encode()) == stream:
            yield key


def fragment(key: str, *, end: bool) -> bytes:
    """A fragment of `FRAGMENT_BYTES` bytes."""
    head = f'{{"key":"{key}","end":{str(end).lower()},"data":"'
    return (head + "x" * (FRAGMENT_BYTES - len(head) - 2) + '"}').encode()


def visits(table: StreamTable, stream: int, lanes: int) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of fragments: sessions take turns and have different ages."""
    fresh = keys_of(table, stream)
    keys = [next(fresh) for _ in range(lanes)]
    ages = [lane % PER_SESSION for lane in range(lanes)]
    while True:
        for lane, key in enumerate(keys):
            ages[lane] += 1
            is_last = ages[lane] == PER_SESSION
            yield key.encode(), fragment(key, end=is_last)
            if is_last:
                keys[lane], ages[lane] = next(fresh), 0


@contextlib.asynccontextmanager
async def broker(kafka: str, names: Names) -> AsyncIterator[Post]:
    """Writes to the streams' topics itself."""
    async with AIOKafkaProducer(
        bootstrap_servers=kafka, acks="all", linger_ms=0, max_batch_size=500_000, request_timeout_ms=60_000
    ) as producer:

        async def post(fragments: list[Fragment]) -> list[asyncio.Future[object]]:
            return [
                await producer.send(names.fragments(stream), value, key=key, partition=0)
                for stream, key, value in fragments
            ]

        yield post


@contextlib.asynccontextmanager
async def front_door(url: str) -> AsyncIterator[Post]:
    """Posts to a producer, which finds the stream by the key in the value."""
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:

        async def post(fragments: list[Fragment]) -> list[asyncio.Future[object]]:
            body = b"[" + b",".join(value for _, _, value in fragments) + b"]"
            response = await client.post(
                "/fragments", content=body, headers={"Content-Type": "application/json"}
            )
            response.raise_for_status()
            return []

        yield post


async def send(post: Post, rate: float, sizes: list[int]) -> None:
    """Fills the streams, then sends `rate` fragments per second over all of them until cancelled."""
    table = initial_table(len(sizes))
    sources = [visits(table, stream, lanes_for(size)) for stream, size in enumerate(sizes)]
    for stream, size in enumerate(sizes):
        left = lanes_for(size) * PER_SESSION
        while left > 0:
            some = [(stream, *next(sources[stream])) for _ in range(min(left, AT_ONCE))]
            await asyncio.gather(*await post(some))
            left -= AT_ONCE
    turns = itertools.cycle(range(len(sizes)))
    due, sent_s = 0.0, time.monotonic()
    while True:
        await asyncio.sleep(TICK_S)
        now_s = time.monotonic()
        due += min(now_s - sent_s, 5 * TICK_S) * rate
        sent_s = now_s
        if due >= 1:
            await post([(stream, *next(sources[stream])) for stream in itertools.islice(turns, int(due))])
            due %= 1


async def main(target: str, namespace: str, rate: float, sizes: list[int]) -> None:
    """Sends to the target until it is stopped."""
    is_url = target.startswith("http")
    async with front_door(target) if is_url else broker(target, Names(namespace)) as post:
        await send(post, rate, sizes)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3]), [int(size) for size in sys.argv[4:]]))
