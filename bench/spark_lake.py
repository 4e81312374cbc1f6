"""The job `lake`, compared with a plain Spark job that copies the same topic to Parquet, and batch by batch.

One million sessions of five fragments of 200 bytes, in one run; then twenty runs of 50,000 new sessions each.
Spark is started once and warmed by small runs, so start-up is in no figure. Run it with
`python -m bench.spark_lake`, or smaller with `python -m bench.spark_lake 50000 5000`.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from pathlib import Path

import msgspec
from rich.console import Console

from bench.machine import machine
from bench.report import Row, growth_row
from shared.kafka.admin.topics import ensure_topics, sessions_topic
from shared.model.names import Names
from tests.lake import record_of
from tests.servers import KafkaServer, temporary_home

SESSIONS = 1_000_000
BATCH = 50_000
BATCHES = 20
FRAGMENTS = 5
SIZE = 200
STREAMS = 12
PARTITIONS = 6
ROUNDS = 3
DAY_MS = 86_400_000
START_MS = 1_700_000_000_000
SPAN_MS = 2 * DAY_MS
"""Over how long the sessions of a fill begin: the log of two days."""


async def fill(kafka: str, names: Names, first: int, sessions: int, *, span_ms: int = SPAN_MS) -> None:
    """Appends so many sessions to the sessions topic, as owners do: each stream to its partition."""
    from aiokafka import AIOKafkaProducer

    await ensure_topics(kafka, [sessions_topic(names, "default", PARTITIONS, -1)], 1)
    async with AIOKafkaProducer(bootstrap_servers=kafka, max_batch_size=900_000) as producer:
        for number in range(first, first + sessions):
            stream = number % STREAMS
            opened_at = START_MS + (number - first) * span_ms // sessions
            key, value = _record(stream, number, opened_at)
            await producer.send(names.sessions("default"), value, key=key, partition=stream % PARTITIONS)


def _record(stream: int, number: int, opened_at: int) -> tuple[bytes, bytes]:
    key = f"visitor-{number % 200_000}"
    data = []
    for turn in range(FRAGMENTS):
        fields = {"key": key, "time": opened_at + 1000 * turn, "data": {"path": f"/page/{number % 97}"}}
        raw = msgspec.json.encode(fields)
        pad = f'"pad":"{number * 2654435761 % 2**64:x}{"x" * (SIZE - len(raw) - 25)}",'.encode()
        data.append(raw[:1] + pad + raw[1:])
    times = (opened_at, opened_at + 1000 * (FRAGMENTS - 1), opened_at)
    return record_of(key, data, FRAGMENTS * (number // STREAMS), times, stream=stream)


def run(kafka: str, home: Path, sessions: int = SESSIONS, batch: int = BATCH) -> list[Row]:
    """The rows of both figures. Raises what Kafka and Spark raise."""
    from services.control.spark.session.spark_session import start_spark
    from tests.spark import Pipeline

    whole, small = Names("bench-lake"), Names("bench-lake-warm")
    asyncio.run(fill(kafka, small, 0, 2_000))
    asyncio.run(fill(kafka, whole, 0, sessions))
    warm = Pipeline(kafka=kafka, namespace=small.namespace).request("lake", home / "warm")
    spark = start_spark(name="bench", master="local[2]", jars=warm.jars, work=home / "spark")

    def copy(names: Names, target: Path) -> float:
        began = time.perf_counter()
        (
            spark.read.format("kafka")
            .option("kafka.bootstrap.servers", kafka)
            .option("kafka.isolation.level", "read_committed")
            .option("subscribe", names.sessions("default"))
            .load()
            .write.parquet(str(target))
        )
        return time.perf_counter() - began

    def keep(names: Names, lake_folder: Path) -> float:
        from services.control.spark.lake.job import lake

        request = Pipeline(kafka=kafka, namespace=names.namespace).request("lake", lake_folder)
        began = time.perf_counter()
        lake(spark, request)
        return time.perf_counter() - began

    mine, plain = [], []
    for number in range(-1, ROUNDS):
        names = whole if number >= 0 else small
        folders = home / f"copy{number}", home / f"lake{number}"
        seconds = copy(names, folders[0]), keep(names, folders[1])
        if number >= 0:
            plain.append(seconds[0])
            mine.append(seconds[1])
        for folder in folders:
            shutil.rmtree(folder)
    steps = []
    growing = Names("bench-lake-batches")
    for number in range(BATCHES):
        asyncio.run(fill(kafka, growing, number * batch, batch, span_ms=DAY_MS))
        steps.append(keep(growing, home / "growing"))
    spark.stop()
    return [
        Row(
            name=f"lake, {sessions:,} sessions of {FRAGMENTS} × {SIZE} B; baseline: a copy to Parquet",
            unit="s",
            baton=mine,
            baseline=plain,
            target="≤ 1.5",
        ),
        growth_row(f"lake, {BATCHES} runs of {batch:,} sessions", steps),
    ]


def main(arguments: list[str]) -> int:
    """Runs it alone; arguments: sessions in all, sessions of a batch."""
    from bench.__main__ import table

    sizes = [int(one) for one in arguments] or [SESSIONS, BATCH]
    console = Console(width=160)
    console.print(machine())
    with temporary_home("kafka") as kafka_home, temporary_home("lake") as home:
        kafka = KafkaServer(kafka_home)
        try:
            kafka.start()
            console.print(table(run(kafka.address, home, *sizes)))
        finally:
            kafka.kill()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
