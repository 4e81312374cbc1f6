"""Members as processes: the delay of a claimed stream, the time until four share 288.

On real servers; the members are `python -m services.consumer`. The figures are absolute, not ratios: their
targets are limits.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import httpx
from aiokafka import AIOKafkaProducer

from bench.report import Row
from shared.errors import KafkaUnavailable
from shared.kafka.admin.topics import checkpoints_topic, ensure_topics, sessions_topic
from shared.kafka.connect.cluster import Cluster
from shared.kafka.read.offsets import LATEST, list_offsets
from shared.model.names import Names
from shared.zookeeper.connection import ZooKeeper
from shared.zookeeper.stream_table import ensure_table
from tests.servers import free_port

MANY = 288
FEW = 24
READY_S = 120.0


async def make(kafka: str, zookeeper: str, namespace: str, streams: int, records: int) -> None:
    """Creates a stream table and all topics, with `records` fragments in each stream.

    The bench measures members that join a running cluster, so this waits until the topics have leaders (a
    broker takes seconds for hundreds of new partitions).
    """
    names = Names(namespace)
    async with ZooKeeper(zookeeper, 6.0) as znodes:
        await znodes.connect(10)
        await ensure_table(
            znodes,
            names,
            kafka=kafka,
            streams=streams,
            default_streams=streams,
            retention_ms=604_800_000,
            replication=1,
        )
    topics = [sessions_topic(names, "default", 6, -1), checkpoints_topic(names, "default", streams)]
    await ensure_topics(kafka, topics, 1)
    checkpoints = [(names.checkpoints("default"), n) for n in range(streams)]
    fragments = [(names.fragments(n), 0) for n in range(streams)]
    async with Cluster(kafka) as cluster:
        async with asyncio.timeout(READY_S):
            while True:
                with contextlib.suppress(KafkaUnavailable):
                    await list_offsets(cluster, [*checkpoints, *fragments], LATEST)
                    break
    if records:
        async with AIOKafkaProducer(bootstrap_servers=kafka) as producer:
            for stream in range(streams):
                for _ in range(records):
                    value = b'{"key":"k","end":true}'
                    await producer.send_and_wait(names.fragments(stream), value, key=b"k", partition=0)


@contextlib.contextmanager
def member(
    kafka: str, zookeeper: str, namespace: str, name: str
) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    port = free_port()
    settings = {
        "BATON_KAFKA": kafka,
        "BATON_ZOOKEEPER": zookeeper,
        "BATON_NAMESPACE": namespace,
        "BATON_MEMBER": name,
        "BATON_PORT": str(port),
        "BATON_LOG_LEVEL": "WARNING",  # measured without the cost of logs
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "services.consumer"], env=os.environ | settings, stdin=subprocess.DEVNULL
    )
    try:
        yield process, f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(60)


async def _status(client: httpx.AsyncClient, url: str) -> dict[str, Any]:
    with contextlib.suppress(httpx.HTTPError):
        found: dict[str, Any] = (await client.get(f"{url}/status")).json()
        return found
    return {"streams": []}


async def until_running(urls: list[str], shares: list[int]) -> list[dict[str, Any]]:
    """The members' statuses as soon as they run (and read) these shares, in any order."""
    async with httpx.AsyncClient(timeout=5) as client, asyncio.timeout(READY_S):
        while True:
            found = [await _status(client, url) for url in urls]
            running = [sum(row["state"] == "running" for row in one["streams"]) for one in found]
            if sorted(running) == sorted(shares):
                return found
            await asyncio.sleep(0.1)


def memory_mb(pid: int) -> float:
    with open(f"/proc/{pid}/status") as status:
        line = next(line for line in status if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def first_record(kafka: str, zookeeper: str, rounds: int = 5) -> list[Row]:
    """The time from a claim to the first record read, for a single stream and for 24 claimed at once."""
    alone: list[float] = []
    for number in range(rounds):
        alone += _first_record_ms(kafka, zookeeper, f"bench-first-{number}", 1)
    together = _first_record_ms(kafka, zookeeper, "bench-first", FEW)
    return [
        Row(name="claim to first record, one stream", unit="ms", baton=alone, baseline=[], target="< 100"),
        Row(
            name=f"claim to first record, {FEW} claimed at once",
            unit="ms",
            baton=together,
            baseline=[],
            target="",
        ),
    ]


def _first_record_ms(kafka: str, zookeeper: str, namespace: str, streams: int) -> list[float]:
    asyncio.run(make(kafka, zookeeper, namespace, streams, 1))
    with member(kafka, zookeeper, namespace, "first") as (_, url):
        asyncio.run(until_running([url], [streams]))
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            rows = httpx.get(f"{url}/status").json()["streams"]
            if all(row["first_record_ms"] >= 0 for row in rows):
                return [row["first_record_ms"] for row in rows]
            time.sleep(0.1)
    raise TimeoutError("a stream was never read")


def sharing(kafka: str, zookeeper: str, rounds: int = 5) -> list[Row]:
    """Four members start at once with 288 streams: the time from the last join until all streams are read."""
    seconds = []
    for number in range(rounds):
        namespace = f"bench-sharing-{number}"
        asyncio.run(make(kafka, zookeeper, namespace, MANY, 0))
        with contextlib.ExitStack() as stack:
            urls = [stack.enter_context(member(kafka, zookeeper, namespace, f"m{n}"))[1] for n in range(4)]
            seconds.append(asyncio.run(_share(zookeeper, Names(namespace), urls)))
    return [
        Row(
            name=f"{MANY} streams over 4 members, all read after the last joined",
            unit="s",
            baton=seconds,
            baseline=[],
            target="< 1.5",
        )
    ]


async def _share(zookeeper: str, names: Names, urls: list[str]) -> float:
    async with ZooKeeper(zookeeper, 6.0) as znodes, asyncio.timeout(READY_S):
        await znodes.connect(10)
        while len(await znodes.children(names.members("default"))) < len(urls):
            await asyncio.sleep(0.02)
    joined_s = time.monotonic()
    await until_running(urls, [MANY // 4] * 4)
    return time.monotonic() - joined_s


def run(kafka: str, zookeeper: str) -> list[Row]:
    """All figures of members."""
    return [*first_record(kafka, zookeeper), *sharing(kafka, zookeeper)]
