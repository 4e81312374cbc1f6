"""HTTP into Kafka: the producer, a bare app and a tutorial's app, in turns on one broker.

Each of them is a process with core 0 to itself and acks=all; the load (`load.py`) and the broker share the
other cores. The bare app is `plain_http.py`, the tutorial's `tutorial_http.py`. A row compares Baton with one
of them in the same rounds. How busy a side kept its core shows whether it was the bottleneck.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from bench.idle import cpu_s
from bench.report import Row
from bench.tutorial_http import TOPIC
from cli.stack.processes.leash import on_leash
from shared.kafka.admin.catalog import TopicSpec
from shared.kafka.admin.topics import ensure_topics, fragments_topics
from shared.model.names import Names
from tests.servers import KafkaServer, ZooKeeperServer, free_port, temporary_home

STREAMS = 24
ROUNDS = 5
ROUND_S = 4.0
READY_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How fragments are sent, and the targets, as factors of the bare app's and of the tutorial's figures."""

    name: str
    batch: int
    connections: int
    rate: float
    p99: float
    cpu: float
    of_tutorial: float


LOADS = (
    Load(name="single fragments", batch=1, connections=64, rate=1.2, p99=0.9, cpu=0.8, of_tutorial=3.5),
    Load(name="batches of 100", batch=100, connections=16, rate=1.3, p99=1.0, cpu=0.6, of_tutorial=11),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the measured processes, with its paths for single fragments and arrays."""

    name: str
    process: subprocess.Popen[bytes]
    port: int
    single: str = "/fragments"
    array: str = "/fragments"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One round of one side: requests/s, ms, CPU µs per fragment, and busy cores of the side and its load."""

    rate: float
    p50_ms: float
    p99_ms: float
    cpu_us: float
    busy: float
    load_busy: float


def run(rounds: int = ROUNDS, seconds: float = ROUND_S) -> list[Row]:
    """Measures; takes about three minutes."""
    with (
        core_apart() as core,
        temporary_home("bench-kafka") as kafka_home,
        temporary_home("bench-zookeeper") as zookeeper_home,
    ):
        kafka, zookeeper = KafkaServer(kafka_home), ZooKeeperServer(zookeeper_home)
        try:
            kafka.start()
            zookeeper.start()
            with _sides(kafka.address, zookeeper.address, core) as sides:
                return [row for load in LOADS for row in _compare(load, sides, rounds, seconds)]
        finally:
            kafka.kill()
            zookeeper.kill()


@contextlib.contextmanager
def core_apart() -> Iterator[int]:
    """A core that is left to what is measured: this process, and those that it starts, use the others."""
    everything = os.sched_getaffinity(0)
    core = min(everything)
    os.sched_setaffinity(0, everything - {core} or everything)  # processes started from here on inherit it
    try:
        yield core
    finally:
        os.sched_setaffinity(0, everything)


@contextlib.contextmanager
def _sides(kafka: str, zookeeper: str, core: int) -> Iterator[list[Side]]:
    """The three sides, Baton first, running on that core."""
    names = Names("plain")
    topics = [
        *fragments_topics(names, STREAMS, 3_600_000),
        TopicSpec(name=TOPIC, partitions=STREAMS, configs={}),
    ]
    asyncio.run(ensure_topics(kafka, topics, 1))
    ports = [free_port() for _ in range(3)]
    environment = os.environ | {
        "BATON_KAFKA": kafka,
        "BATON_ZOOKEEPER": zookeeper,
        "BATON_PORT": str(ports[0]),
        "BATON_STREAMS": str(STREAMS),
        "BATON_LOG_LEVEL": "WARNING",
    }
    plain_topics = ",".join(names.fragments(n) for n in range(STREAMS))
    commands = (
        ["services.producer"],
        ["bench.plain_http", kafka, str(ports[1]), plain_topics],
        ["bench.tutorial_http", kafka, str(ports[2])],
    )
    with contextlib.ExitStack() as stack:
        baton, bare, tutorial = (
            stack.enter_context(started(command, environment, core)) for command in commands
        )
        for port, path in zip(ports, ("/readyz", "/", "/docs"), strict=True):
            await_answer(f"http://127.0.0.1:{port}{path}")
        yield [
            Side(name="Baton", process=baton, port=ports[0]),
            Side(name="bare", process=bare, port=ports[1]),
            Side(name="tutorial", process=tutorial, port=ports[2], array="/batches"),
        ]


@contextlib.contextmanager
def started(
    command: list[str], environment: Mapping[str, str], core: int
) -> Iterator[subprocess.Popen[bytes]]:
    """A module with its arguments as a process on that core, during the block."""
    argv = on_leash([sys.executable, "-m", *command])
    process = subprocess.Popen(argv, env=environment, preexec_fn=lambda: os.sched_setaffinity(0, {core}))
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)


def await_answer(url: str) -> None:
    """Returns once a 200 comes from there."""
    deadline = time.monotonic() + READY_S
    while True:
        try:
            urllib.request.urlopen(url, timeout=5).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return


def _compare(load: Load, sides: list[Side], rounds: int, seconds: float) -> list[Row]:
    """Runs a short warm-up round, then all sides in turns."""
    found: dict[str, list[Measured]] = {side.name: [] for side in sides}
    for number in range(rounds + 1):
        for side in sides:
            measured = _round(load, side, seconds if number else seconds / 4)
            if number:
                found[side.name].append(measured)
    return _rows(load, found["Baton"], found["bare"], found["tutorial"])


def _round(load: Load, side: Side, seconds: float) -> Measured:
    path = side.single if load.batch == 1 else side.array
    arguments = [side.port, path, load.connections, load.batch, seconds]
    argv = on_leash([sys.executable, "-m", "bench.load", *map(str, arguments)])
    before_s = cpu_s(side.process.pid)
    result = json.loads(subprocess.run(argv, check=True, stdout=subprocess.PIPE, timeout=seconds + 60).stdout)
    used_s = cpu_s(side.process.pid) - before_s
    return Measured(
        rate=result["rate"],
        p50_ms=result["p50_ms"],
        p99_ms=result["p99_ms"],
        cpu_us=used_s / result["answers"] / load.batch * 1e6,
        busy=used_s / result["seconds"],
        load_busy=result["cpu_s"] / result["seconds"],
    )


def _rows(load: Load, baton: list[Measured], bare: list[Measured], tutorial: list[Measured]) -> list[Row]:
    """The rows with targets, then those that explain them."""

    def row(
        what: str, unit: str, value: Callable[[Measured], float], than: list[Measured], target: str = ""
    ) -> Row:
        against = "bare" if than is bare else "tutorial"
        return Row(
            name=f"HTTP, {load.name}, {what}, against {against}",
            unit=unit,
            baton=[value(one) for one in baton],
            baseline=[value(one) for one in than],
            target=target,
        )

    return [
        row("requests", "1/s", lambda m: m.rate, bare, f"≥ {load.rate:g} ×"),
        row("requests", "1/s", lambda m: m.rate, tutorial, f"≥ {load.of_tutorial:g} ×"),
        row("fragments", "1/s", lambda m: m.rate * load.batch, bare),
        row("p50", "ms", lambda m: m.p50_ms, bare),
        row("p99", "ms", lambda m: m.p99_ms, bare, f"≤ {load.p99:g} ×"),
        row("p99", "ms", lambda m: m.p99_ms, tutorial),
        row("CPU per fragment", "µs", lambda m: m.cpu_us, bare, f"≤ {load.cpu:g} ×"),
        row("its core busy", "", lambda m: m.busy, bare),
        row("its core busy", "", lambda m: m.busy, tutorial),
        row("load's CPU", "cores", lambda m: m.load_busy, bare),
    ]


def main(rounds: int, seconds: float) -> None:
    """Prints the table."""
    print(f"{'':52} {'unit':6} {'Baton':>32} {'the other':>32} {'ratio':>22} target")
    for row in run(rounds, seconds):
        ratios = [mine / other for mine, other in zip(row.baton, row.baseline, strict=True)]
        shown = [
            f"{statistics.median(values):.4g} ({min(values):.4g} … {max(values):.4g})"
            for values in (row.baton, row.baseline, ratios)
        ]
        print(f"{row.name:52} {row.unit:6} {shown[0]:>32} {shown[1]:>32} {shown[2]:>22} {row.target}")


if __name__ == "__main__":
    main(*(int(value) for value in sys.argv[1:3] or ("5", "4")))
