"""Sessionizing a backlog, compared with a bare aiokafka loop of the same shape without any safety.

200,000 fragments of 1 KB, 20 per session, 2,000 open at a time, 12 streams, `exactly_once`. Each round runs
each loop in a process of its own, which reports its CPU time and its peak memory beyond interpreter and
imports. Run it with `make bench`, or alone with `python -m bench.sessionize`.
"""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bench.report import Row
from shared.model.names import Names
from shared.model.routing import initial_table

if TYPE_CHECKING:
    from services.consumer.stream.worker import StreamWorker
    from shared.model.start import GroupStart

STREAMS = 12
FRAGMENTS = 200_000
PER_SESSION = 20
OPEN = 2_000
SIZE = 1_000
ROUNDS = 5
NAMES = Names("bench-sessionize")


async def fill(kafka: str) -> None:
    """Writes the backlog: cohorts of `OPEN` sessions whose fragments come in turns."""
    from aiokafka import AIOKafkaProducer

    from shared.kafka.admin.topics import ensure_topics, fragments_topics, sessions_topic

    await ensure_topics(
        kafka,
        [*fragments_topics(NAMES, STREAMS, 604_800_000), sessions_topic(NAMES, "bare", STREAMS, -1)],
        1,
    )
    table = initial_table(STREAMS)
    producer = AIOKafkaProducer(bootstrap_servers=kafka, max_batch_size=500_000)
    await producer.start()
    for topic in map(NAMES.fragments, range(STREAMS)):
        await producer.partitions_for(topic)
    for cohort in range(FRAGMENTS // OPEN // PER_SESSION):
        for turn in range(PER_SESSION):
            for visitor in range(OPEN):
                key = f"visitor-{cohort}-{visitor}"
                fields = {"key": key, "end": turn == PER_SESSION - 1, "data": {"turn": turn, "pad": ""}}
                value = json.dumps(fields)
                pad = "x" * (SIZE - len(value))
                raw = value.replace('"pad": ""', f'"pad": "{pad}"').encode()
                topic = NAMES.fragments(table.stream_for(key.encode()))
                await producer.send(topic, value=raw, key=key.encode(), partition=0)
    await producer.stop()


async def bare(kafka: str, group: str) -> int:
    """Polls, parses keys, collects fragments in a dict, sends finished sessions; returns their number."""
    import msgspec
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

    class KeyOnly(msgspec.Struct):
        key: str
        end: bool = False

    decode = msgspec.json.Decoder(KeyOnly).decode
    consumer = AIOKafkaConsumer(
        bootstrap_servers=kafka, group_id=None, enable_auto_commit=False, max_partition_fetch_bytes=4 << 20
    )
    await consumer.start()
    partitions = [TopicPartition(NAMES.fragments(n), 0) for n in range(STREAMS)]
    consumer.assign(partitions)
    for partition in partitions:
        consumer.seek(partition, 0)
    producer = AIOKafkaProducer(bootstrap_servers=kafka, max_batch_size=1 << 20, acks="all")
    await producer.start()
    sessions: dict[str, list[bytes]] = {}
    out = NAMES.sessions("bare")
    seen = sent = 0
    while seen < FRAGMENTS:
        for partition, records in (await consumer.getmany(timeout_ms=1000)).items():
            stream = NAMES.stream_of(partition.topic)
            for record in records:
                fragment = decode(record.value)
                if fragment.key in sessions:
                    sessions[fragment.key].append(record.value)
                else:
                    sessions[fragment.key] = [record.value]
                if fragment.end:
                    whole = b"[" + b",".join(sessions.pop(fragment.key)) + b"]"
                    await producer.send(out, value=whole, key=record.key, partition=stream)
                    sent += 1
            seen += len(records)
    await producer.stop()
    await consumer.stop()
    return sent


async def baton(kafka: str, group: str) -> int:
    """Runs the real stream workers on the real log; returns the number of delivered sessions."""
    return sum(worker.counts.sessions for worker in await read_all(kafka, group))


async def read_all(kafka: str, group: str, chain: Sequence[GroupStart] = ()) -> list[StreamWorker]:
    """The group's stream workers, after they have read the real log to its end; `chain`: whom it follows."""
    from services.consumer.adapters.kafka.log import KafkaStreamLog
    from services.consumer.core.commits.turn import StreamLimits
    from services.consumer.stream.context import Claimed, GroupContext
    from services.consumer.stream.worker import StreamWorker
    from shared.kafka.admin.topics import checkpoints_topic, ensure_topics, sessions_topic
    from shared.model.group import GroupSettings

    await ensure_topics(
        kafka,
        [sessions_topic(NAMES, group, STREAMS, -1), checkpoints_topic(NAMES, group, STREAMS)],
        1,
    )

    async def is_mine() -> bool:
        return True

    settings = GroupSettings()
    log = KafkaStreamLog(kafka, NAMES, group, settings, STREAMS)
    context = GroupContext(
        group=group,
        settings=settings,
        limits=StreamLimits(),
        log=log,
        now_s=time.monotonic,
        wall_ms=lambda: time.time_ns() // 1_000_000,
        chain=chain,
    )
    claimed = Claimed(is_mine=is_mine, lease_alive=lambda: True, commit_s=1.0)
    workers = [StreamWorker(n, 1, context, claimed) for n in range(STREAMS)]
    tasks = [asyncio.create_task(worker.run()) for worker in workers]
    while sum(max(0, worker.position) for worker in workers) < FRAGMENTS:
        await asyncio.sleep(0.02)
    for worker in workers:
        worker.stop()
    await asyncio.gather(*tasks)
    await log.close()
    return workers


def _child(which: str, kafka: str, group: str) -> None:
    import aiokafka.admin
    import uvloop

    import services.consumer.adapters.kafka.log
    import services.consumer.stream.worker

    assert aiokafka.admin is not None
    assert services.consumer.stream.worker is not None
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began, began_cpu = time.perf_counter(), time.process_time()
    sessions = uvloop.run({"bare": bare, "baton": baton}[which](kafka, group))
    assert sessions == FRAGMENTS // PER_SESSION, sessions
    print(
        json.dumps(
            {
                "cpu_us": (time.process_time() - began_cpu) / FRAGMENTS * 1e6,
                "wall_s": time.perf_counter() - began,
                "memory_mb": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb) / 1024,
            }
        )
    )


def run(kafka: str, rounds: int = ROUNDS) -> list[Row]:
    """Fills the backlog once, then measures both loops in turns; asserts that both find every session."""
    asyncio.run(fill(kafka))
    found: dict[str, list[dict[str, Any]]] = {"bare": [], "baton": []}
    for number in range(rounds + 1):
        for which, values in found.items():
            argv = [sys.executable, "-m", "bench.sessionize", which, kafka, f"round-{number}"]
            done = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=120)
            if number:  # the first round warms up the broker
                values.append(json.loads(done.stdout.splitlines()[-1]))
    return [
        Row(
            name=f"sessionize a backlog: {what}",
            unit=unit,
            baton=[value[figure] for value in found["baton"]],
            baseline=[value[figure] for value in found["bare"]],
            target=target,
        )
        for figure, what, unit, target in (
            ("cpu_us", "client CPU per fragment", "µs", "≤ 1.05 ×"),
            ("memory_mb", "peak memory beyond imports", "MB", "≤ 1 ×"),
            ("wall_s", "wall time", "s", ""),
        )
    ]


if __name__ == "__main__":
    if len(sys.argv) > 2:
        _child(*sys.argv[1:])
    else:
        from tests.servers import KafkaServer, temporary_home

        with temporary_home("kafka") as home:
            server = KafkaServer(home)
            server.start()
            try:
                for row in run(server.address, 3):
                    print(row)
            finally:
                server.kill()
