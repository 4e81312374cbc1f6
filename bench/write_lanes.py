"""How many connections to each broker commits need: `python -m bench lanes`.

288 transactional ids over the connections of one process, on one broker and on three with replication 3. A
broker answers the requests of a connection in order, so a commit waits for the replicas of those before it.
Each commit writes a checkpoint record and a session of 2 KB and commits an offset, as an owner does: at the
default pace (`BATON_COMMITS_PER_S`), and as fast as it goes.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time

from bench.report import Row
from shared.errors import KafkaUnavailable
from shared.kafka.admin.catalog import TopicSpec
from shared.kafka.admin.topics import ensure_topics
from shared.kafka.connect.cluster import Cluster
from shared.kafka.send.transactional import GroupOffset, TransactionalWriter
from tests.kafka_cluster import kafka_cluster

STREAMS = 288
LANES = (1, 2, 3, 4)
SESSION_PARTITIONS = 6
RECORD = b"x" * 2_000
COMMITS_PER_S = 300.0
MEASURED_S = 10.0
ROUNDS = 1


async def _prepare(kafka: str, prefix: str, replication: int) -> None:
    topics = [
        TopicSpec(name=f"{prefix}.checkpoints", partitions=STREAMS),
        TopicSpec(name=f"{prefix}.sessions", partitions=SESSION_PARTITIONS),
    ]
    await ensure_topics(kafka, topics, replication)


async def _commit(writer: TransactionalWriter, prefix: str, stream: int, number: int) -> None:
    checkpoints = f"{prefix}.checkpoints", stream
    sessions = f"{prefix}.sessions", stream % SESSION_PARTITIONS
    await writer.add([checkpoints, sessions])
    await writer.write(checkpoints, [(None, RECORD, [])])
    await writer.write(sessions, [(b"k", RECORD, [])])
    await writer.commit_offset(GroupOffset(group=prefix, partition=checkpoints, offset=number, metadata="{}"))
    await writer.end(is_commit=True)


async def _measure(
    kafka: str, prefix: str, lanes: int, rate: float | None
) -> tuple[list[float], float, float, int]:
    """Seconds of each commit, commits per second, the client's CPU (ms) of a commit, and how many failed."""
    async with Cluster(kafka, write_lanes=lanes) as cluster:
        writers = [TransactionalWriter(cluster, f"{prefix}.{n}", timeout_ms=60_000) for n in range(STREAMS)]
        for some in range(0, STREAMS, 16):
            await asyncio.gather(*(_opened(writer) for writer in writers[some : some + 16]))
        for n in range(0, STREAMS, 8):
            await _commit(writers[n], prefix, n, 1)
        taken: list[float] = []
        failed = 0
        began_s, cpu_s = time.monotonic(), time.process_time()
        until_s = began_s + MEASURED_S

        async def run(stream: int) -> None:
            nonlocal failed
            every_s = STREAMS / rate if rate else 0.0
            due_s = began_s + every_s * stream / STREAMS
            for number in itertools.count(2):
                await asyncio.sleep(max(0.0, min(due_s, until_s) - time.monotonic()))
                if time.monotonic() >= until_s:
                    return
                start_s = time.monotonic()
                try:
                    await _commit(writers[stream], prefix, stream, number)
                except KafkaUnavailable:
                    failed += 1
                    await _opened(writers[stream])
                    continue
                taken.append(time.monotonic() - start_s)
                due_s = max(due_s + every_s, time.monotonic())

        await asyncio.gather(*(run(n) for n in range(STREAMS)))
        cpu_s = time.process_time() - cpu_s
        return taken, len(taken) / (time.monotonic() - began_s), cpu_s / len(taken) * 1_000, failed


async def _opened(writer: TransactionalWriter) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                return await writer.open()
            except KafkaUnavailable:
                await asyncio.sleep(0.2)


def _rows(kafka: str, replication: int) -> list[Row]:
    asyncio.run(_prepare(kafka, f"lanes{replication}", replication))
    found: dict[tuple[int, str, str], list[float]] = {}
    for _ in range(ROUNDS):
        for rate in (COMMITS_PER_S, None):
            for lanes in LANES:
                taken, per_s, cpu_ms, failed = asyncio.run(
                    _measure(kafka, f"lanes{replication}", lanes, rate)
                )
                how = f"{rate:.0f}/s" if rate else "as fast as it goes"
                ranked = sorted(taken)
                for name, unit, value in (
                    ("median", "ms", statistics.median(ranked) * 1_000),
                    ("p99", "ms", ranked[int(len(ranked) * 0.99)] * 1_000),
                    ("rate", "1/s", per_s),
                    ("CPU", "ms", cpu_ms),
                    ("failed", "", failed),
                ):
                    found.setdefault((lanes, f"{how}, {name}", unit), []).append(value)
    return [
        Row(
            name=f"commits, replication {replication}, {lanes} connections, {what}",
            unit=unit,
            baton=values,
            baseline=[] if what.endswith("failed") else found[1, what, unit],
            target="",
        )
        for (lanes, what, unit), values in found.items()
    ]


def run(kafka: str) -> list[Row]:
    """All figures; each is compared with that of one connection."""
    rows = _rows(kafka, 1)
    with kafka_cluster() as cluster:
        rows += _rows(cluster.address, 3)
    return rows
