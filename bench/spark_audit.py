"""The job `audit`, compared with a plain Spark job that groups and sorts the same fragments.

Fragments of 200 bytes in sessions of five, on 12 streams, all delivered; no table. Each run has its own
process and Spark. The clock starts when Spark is up and has audited a small log. The peak is
the sum of the resident memory of Python, Java and Spark's Python workers. Run it with
`python -m bench.spark_audit [fragments …]`: with several numbers, the memory of the last is compared with
that of the first.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.report import Row
from shared.model.names import Names
from tests.spark import Pipeline

STREAMS = 12
PARTITIONS = 4
PER_SESSION = 5
OPEN = 1_000
"""Sessions of a stream that are open at a time."""
SIZE = 200
FRAGMENTS = (100_000, 300_000)
WARM_UP = 1_000
ROUNDS = 3
GROUP = "default"
RUN_S = 3_600
SAMPLE_S = 0.1


def names_of(fragments: int) -> Names:
    return Names(f"bench-audit-{fragments}")


def pipeline_of(kafka: str, fragments: int) -> Pipeline:
    return Pipeline(kafka=kafka, namespace=names_of(fragments).namespace, streams=STREAMS)


async def fill(kafka: str, fragments: int) -> None:
    """Writes a log, the sessions that owners close in it, and the heads."""
    from aiokafka import AIOKafkaProducer

    from services.consumer.core.commits.delivery import delivered
    from services.consumer.core.sessions.assembly import Assembler
    from shared.kafka.admin.topics import MAX_RECORD_BYTES, ensure_topics, fragments_topics, sessions_topic
    from shared.model.group import GroupSettings
    from tests.reference import Rec

    names = names_of(fragments)
    topics = [*fragments_topics(names, STREAMS, -1), sessions_topic(names, GROUP, PARTITIONS, -1)]
    await ensure_topics(kafka, topics, 1)
    keys = _keys()
    async with AIOKafkaProducer(
        bootstrap_servers=kafka, max_request_size=MAX_RECORD_BYTES, max_batch_size=900_000, linger_ms=5
    ) as producer:
        positions = {}
        for stream in range(STREAMS):
            assembler = Assembler(GroupSettings())
            left = fragments // STREAMS
            while left > 0:
                cohort = [next(keys[stream]) for _ in range(min(OPEN, max(1, left // PER_SESSION)))]
                for turn in range(PER_SESSION):
                    batch, values = producer.create_batch(), []
                    for key in cohort:
                        value = _value(key, turn)
                        batch.append(key=key.encode(), value=value, timestamp=None)
                        values.append((key.encode(), value))
                    batch.close()
                    sent = await producer.send_batch(batch, names.fragments(stream), partition=0)
                    where = await sent
                    closed = assembler.feed(
                        [Rec(where.offset + n, where.timestamp, *one) for n, one in enumerate(values)]
                    )
                    left -= len(values)
                    for one in closed:
                        key, value = delivered(one, GROUP, stream, 1, 0)
                        await producer.send(
                            names.sessions(GROUP), value, key=key, partition=stream % PARTITIONS
                        )
            positions[stream] = assembler.position
        await producer.flush()
    await pipeline_of(kafka, fragments).commit(positions)


def _keys() -> list[Any]:
    """For each stream, keys without end that belong to it."""
    from itertools import count

    from shared.model.routing import initial_table

    table = initial_table(STREAMS)

    def of_stream(stream: int) -> Any:
        for number in count():
            key = f"visitor-{number}"
            if table.stream_for(key.encode()) == stream:
                yield key

    return [of_stream(stream) for stream in range(STREAMS)]


def _value(key: str, turn: int) -> bytes:
    body = {"key": key, "time": 1_700_000_000_000 + turn * 1000, "id": f"{key}-{turn}"}
    if turn == PER_SESSION - 1:
        body["end"] = True
    raw = json.dumps(body | {"data": {"path": f"/{turn}", "pad": ""}})
    return raw.replace('"pad": ""', f'"pad": "{"x" * (SIZE - len(raw))}"').encode()


def _audit(spark: Any, kafka: str, fragments: int, folder: Path) -> None:
    from services.control.spark.audit.job import audit

    result = audit(spark, pipeline_of(kafka, fragments).request("audit", folder / "lake"))
    sessions = result["fragments"] // PER_SESSION
    assert (result["verdict"], result["judged"]) == ("exact", sessions), result


def _plain(spark: Any, kafka: str, fragments: int, folder: Path) -> None:
    """Groups the fragments by key, each group in the order of the log, and drops them."""
    from pyspark.sql import functions as f

    topics = ",".join(names_of(fragments).fragments(stream) for stream in range(STREAMS))
    records = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", kafka)
        .option("subscribe", topics)
        .option("startingOffsets", "earliest")
        .load()
    )
    fragment = f.struct("offset", "timestamp", "value")
    groups = records.groupBy("topic", "key").agg(f.sort_array(f.collect_list(fragment)).alias("fragments"))
    groups.write.format("noop").mode("overwrite").save()


def _child(which: str, kafka: str, fragments: int, folder: Path) -> None:
    from cli.stack.jars.lock import jar_folder
    from services.control.spark.session.spark_session import start_spark

    spark = start_spark(name="bench", master="local[2]", jars=str(jar_folder("spark")), work=folder / "work")
    job = {"audit": _audit, "plain": _plain}[which]
    job(spark, kafka, WARM_UP, folder)
    began_s, before_s = time.perf_counter(), _cpu_s(os.getsid(0))
    job(spark, kafka, fragments, folder)
    wall_s, cpu_s = time.perf_counter() - began_s, _cpu_s(os.getsid(0)) - before_s
    print(json.dumps({"wall_s": wall_s, "cpu_s": cpu_s}))
    spark.stop()


def _measured(which: str, kafka: str, fragments: int) -> dict[str, float]:
    """Seconds, and the peak of the resident memory in MB, of a run in its own process."""
    from tests.servers import temporary_home

    with temporary_home("bench-audit") as folder:
        argv = [sys.executable, "-m", "bench.spark_audit", which, kafka, str(fragments), str(folder)]
        child = subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        peak_kb, has_ended = 0, threading.Event()

        def watch() -> None:
            nonlocal peak_kb
            while not has_ended.wait(SAMPLE_S):
                peak_kb = max(peak_kb, _resident_kb(child.pid))

        watching = threading.Thread(target=watch)
        watching.start()
        try:
            out, errors = child.communicate(timeout=RUN_S)
        finally:
            has_ended.set()
            watching.join()
        if child.returncode:
            raise RuntimeError(errors[-3000:])
        return dict(json.loads(out.splitlines()[-1])) | {"memory_mb": peak_kb / 1024}


def _resident_kb(session: int) -> int:
    """The resident memory of all processes of a session."""
    return sum(int(fields[21]) for fields in _stats(session)) * os.sysconf("SC_PAGE_SIZE") // 1024


def _cpu_s(session: int) -> float:
    """The CPU time of all processes of a session, also of those that have ended."""
    ticks = sum(int(number) for fields in _stats(session) for number in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def _stats(session: int) -> Iterator[list[str]]:
    """For each process of a session the fields of its `stat` from the third on."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        if fields[3] == str(session):
            yield fields


def run(kafka: str, sizes: tuple[int, ...] = FRAGMENTS, rounds: int = ROUNDS) -> list[Row]:
    """Fills a log of each size, then runs both jobs in turns."""
    for fragments in (WARM_UP, *sizes):
        asyncio.run(fill(kafka, fragments))
    found: dict[tuple[int, str], list[dict[str, float]]] = {}
    for _ in range(rounds):
        for fragments in sizes:
            for which in ("plain", "audit"):
                found.setdefault((fragments, which), []).append(_measured(which, kafka, fragments))
    rows = [
        Row(
            name=f"audit of {fragments:,} fragments, against grouping and sorting them: {what}",
            unit="s",
            baton=[one[figure] for one in found[fragments, "audit"]],
            baseline=[one[figure] for one in found[fragments, "plain"]],
            target=target,
        )
        for fragments in sizes
        for figure, what, target in (("wall_s", "wall time", "≤ 2 ×"), ("cpu_s", "CPU time", ""))
    ]
    small, large = sizes[0], sizes[-1]
    memory = Row(
        name=f"audit: peak memory with {large:,} fragments, against {small:,}",
        unit="MB",
        baton=[one["memory_mb"] for one in found[large, "audit"]],
        baseline=[one["memory_mb"] for one in found[small, "audit"]],
        target="≤ 1.2 ×",
    )
    return [*rows, memory]


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] in ("audit", "plain"):
        _child(sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
    else:
        from tests.servers import KafkaServer, temporary_home

        chosen = tuple(map(int, sys.argv[1:])) or FRAGMENTS
        with temporary_home("kafka") as home:
            server = KafkaServer(home)
            server.start()
            try:
                for row in run(server.address, chosen):
                    print(row)
            finally:
                server.kill()
