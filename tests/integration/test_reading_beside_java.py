"""What Baton reads is what Kafka's Java consumer reads: all codecs, transactions, nulls, sizes of fetches.

`make diff-reading` runs it. Java writes the log too, because other clients frame compressed batches in their
own ways. It needs a JDK: the program beside this file is compiled as it starts. Seeded; the seed is printed,
and `BATON_TEST_SEED` repeats it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.stack.jars.java import find_java
from cli.stack.jars.lock import class_path, jar_folder, read_lock
from shared.kafka.admin.catalog import TopicSpec
from shared.kafka.admin.topics import ensure_topics
from shared.kafka.connect.cluster import Cluster
from shared.kafka.read.fetcher import Fetcher
from shared.kafka.read.offsets import LATEST, list_offsets
from shared.kafka.read.ranges import read_range
from shared.kafka.send.transactional import TransactionalWriter
from shared.kafka.wire.records import CODECS

PROGRAM = Path(__file__).with_name("KafkaClient.java")
STEPS = 200
ODD_BYTES = (1, 61, 173, 1_000, 4_097, 65_536, 1_000_003)
ISOLATIONS = ("read_uncommitted", "read_committed")
LONG_S = 120.0
Row = tuple[Any, ...]
"""Offset, time, key, value, and names and values of headers."""


@pytest.fixture
def rng() -> random.Random:
    """The source of all choices."""
    seed = int(os.environ.get("BATON_TEST_SEED", random.SystemRandom().randrange(1_000_000)))
    print(f"BATON_TEST_SEED={seed}")
    return random.Random(seed)


@pytest.fixture
def compiler() -> str:
    """A Java that can compile a program as it starts it."""
    modules = [find_java(), "--list-modules"]
    if "jdk.compiler" not in subprocess.run(modules, capture_output=True, text=True, check=True).stdout:
        pytest.skip("this Java is no JDK: it has no compiler")
    return find_java()


@pytest.fixture
async def java(kafka: str, namespace: str, compiler: str, rng: random.Random) -> AsyncIterator[Java]:
    """Kafka's own client, for a topic that is made for it."""
    topic = f"{namespace}.log"
    times = {"message.timestamp.type": rng.choice(["CreateTime", "LogAppendTime"])}
    await ensure_topics(kafka, [TopicSpec(name=topic, configs=times)], 1)
    path = class_path(jar_folder("kafka"), read_lock("kafka"))
    process = await asyncio.create_subprocess_exec(
        *(compiler, "-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"),
        *("-cp", path, str(PROGRAM), kafka, topic),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        limit=16 * 1024 * 1024,
    )
    try:
        yield Java(topic, process)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


class Java:
    """The program at the other end of its pipe."""

    def __init__(self, topic: str, process: asyncio.subprocess.Process) -> None:
        self.topic = topic
        assert process.stdin is not None
        assert process.stdout is not None
        self._in, self._out = process.stdin, process.stdout

    async def do(self, *lines: str) -> None:
        """Has it do these things; it answers only when it reads."""
        self._in.write("".join(f"{line}\n" for line in lines).encode())
        await self._in.drain()

    async def read(self, isolation: str, start: int, fetch_bytes: int, at_once: int) -> tuple[list[Row], int]:
        """What its consumer finds from an offset on, and where it ends."""
        await self.do(f"read {isolation} {start} {fetch_bytes} {at_once}")
        found: list[Row] = []
        async with asyncio.timeout(LONG_S):
            while (words := (await self._out.readline()).decode().split() or ["gone"])[0] != "end":
                offset, time_ms, key, value, *headers = words
                named = [(name, unhex(text)) for name, text in zip(headers[::2], headers[1::2], strict=True)]
                found.append((int(offset), int(time_ms), unhex(key), unhex(value), named))
        return found, int(words[1])


def in_hex(value: bytes | None) -> str:
    return "-" if value is None else value.hex() or "_"


def unhex(text: str) -> bytes | None:
    return None if text == "-" else bytes.fromhex(text.replace("_", ""))


def some_bytes(rng: random.Random) -> bytes | None:
    """None, nothing, a few bytes, or many that can be compressed or cannot."""
    size = rng.choice([0, 1, 7, 100, 100, 3_000])
    return rng.choice([None, rng.randbytes(size), b"abc" * size, b"x" * (size % 1_000)])


def random_steps(rng: random.Random) -> Iterator[str]:
    """What the producers do: ten of them, half of them in transactions that overlap and end either way."""
    is_open: set[str] = set()
    for _ in range(STEPS):
        producer = rng.choice(["", "+"]) + rng.choice(sorted(CODECS))
        if producer.startswith("+") and producer not in is_open:
            yield f"begin {producer}"
            is_open.add(producer)
        for _ in range(rng.choice([1, 2, 15])):
            headers = [f"h{n} {in_hex(some_bytes(rng))}" for n in range(rng.choice([0, 0, 2]))]
            yield " ".join(["send", producer, in_hex(some_bytes(rng)), in_hex(some_bytes(rng)), *headers])
        yield f"flush {producer}"
        if producer in is_open and rng.random() < 0.6:
            yield f"{rng.choice(['commit', 'abort'])} {producer}"
            is_open.remove(producer)
    yield from (f"abort {producer}" for producer in sorted(is_open))


async def write_ours(cluster: Cluster, topic: str, rng: random.Random) -> None:
    """Transactions of our own writer, every other one aborted."""
    writer = TransactionalWriter(cluster, f"{topic}.ours", timeout_ms=12_000)
    await writer.open()
    for n in range(6):
        await writer.add([(topic, 0)])
        await writer.write((topic, 0), [(some_bytes(rng), some_bytes(rng), []) for _ in range(5)])
        await writer.end(is_commit=n % 2 == 0)


async def decided_end(cluster: Cluster, topic: str) -> int:
    """The log's end, once each transaction has its marker: a broker acknowledges an end before that."""
    async with asyncio.timeout(LONG_S):
        while True:
            ends = [
                (await list_offsets(cluster, [(topic, 0)], LATEST, is_committed=is_committed))[topic, 0]
                for is_committed in (True, False)
            ]
            if ends[0] == ends[1]:
                return ends[0]
            await asyncio.sleep(0.1)


def row_of(record: Any) -> Row:
    return record.offset, record.timestamp, record.key, record.value, list(record.headers)


async def fetched(
    cluster: Cluster, topic: str, isolation: str, start: int, end: int, fetch_bytes: int, at_once: int
) -> tuple[list[Row], int]:
    """What a member reads: everything from the start to the log's end, and where it is then."""
    fetcher = Fetcher(cluster, is_committed=isolation == "read_committed")
    reading, found = fetcher.read(topic, 0, start), []
    reading._max_bytes = fetch_bytes
    try:
        async with asyncio.timeout(LONG_S):
            while reading.position < end:
                found += [row_of(record) for record in await reading.take(1.0, at_once)]
    finally:
        await fetcher.close()
    return found, reading.position


@pytest.mark.soak
async def test_a_log_reads_as_in_java(java: Java, kafka: str, rng: random.Random) -> None:
    """From any offset, with fetches and calls of any size, with and without what was aborted."""
    await java.do(*random_steps(rng))
    async with Cluster(kafka) as cluster:
        everything, _ = await java.read("read_uncommitted", 0, 1_000_003, 500)
        await write_ours(cluster, java.topic, rng)
        end = await decided_end(cluster, java.topic)

        compared = 0
        for isolation in ISOLATIONS:
            for fetch_bytes in ODD_BYTES:
                start, at_once = rng.choice([0, rng.randrange(end)]), rng.choice([1, 7, 500])
                expected = await java.read(isolation, start, fetch_bytes, at_once)
                ranged = [
                    row_of(record)
                    async for record in read_range(
                        cluster,
                        (java.topic, 0),
                        start,
                        end - 1,
                        is_committed=isolation == "read_committed",
                        fetch_bytes=fetch_bytes,
                    )
                ]
                place = cluster, java.topic, isolation, start, end, fetch_bytes, at_once
                assert await fetched(*place) == expected, (isolation, fetch_bytes, start, at_once)
                assert (ranged, end) == expected, (isolation, fetch_bytes, start)
                compared += len(expected[0])

    print(f"{len(everything):,} records of Java's, {end:,} offsets, {compared:,} records compared")
    assert any(value is None for _, _, _, value, _ in everything)
    assert compared > 4_000
