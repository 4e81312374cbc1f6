"""HTTP into Kafka: the producer against `plain_http.py`, alternating, on one broker in one run.

The process that is measured has core 0 to itself; load and broker share the others. Bodies are NDJSON of
1 KB fragments for 24 streams. Rates depend on the broker's core as well, so CPU per fragment is told too.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass

from bench.report import Row
from shared.kafka import ensure_topics, fragments_topics
from shared.names import Names
from tests.servers import KafkaServer, ZooKeeperServer, free_port, temporary_home

STREAMS = 24
KEYS = 5_000
FRAGMENT_BYTES = 1_000
ROUNDS = 5
ROUND_S = 3.0
WARM_UP_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How the fragments are sent."""

    name: str
    batch: int
    connections: int
    target: str


LOADS = (
    Load(name="HTTP, batches of 100", batch=100, connections=16, target="≥ 0.6 ×"),
    Load(name="HTTP, single fragments", batch=1, connections=64, target="(told)"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One round: fragments per second, and µs of the serving process's CPU per fragment."""

    rate: float
    cpu_us: float


def run() -> list[Row]:
    """Measures; two rows (rate, CPU) per load. Takes about a minute."""
    everything = os.sched_getaffinity(0)
    rest = everything - {min(everything)} or everything
    os.sched_setaffinity(0, rest)  # what is started from here on inherits it
    try:
        with temporary_home("bench-kafka") as kafka_home, temporary_home("bench-zookeeper") as zookeeper_home:
            kafka, zookeeper = KafkaServer(kafka_home), ZooKeeperServer(zookeeper_home)
            try:
                kafka.start()
                zookeeper.start()
                return _compare(kafka.address, zookeeper.address, min(everything))
            finally:
                kafka.kill()
                zookeeper.kill()
    finally:
        os.sched_setaffinity(0, everything)


def _compare(kafka: str, zookeeper: str, core: int) -> list[Row]:
    names = Names("plain")
    asyncio.run(ensure_topics(kafka, fragments_topics(names, STREAMS, 3_600_000), 1))
    topics = ",".join(names.fragments(n) for n in range(STREAMS))
    ports = free_port(), free_port()
    environment = os.environ | {
        "BATON_KAFKA": kafka,
        "BATON_ZOOKEEPER": zookeeper,
        "BATON_PORT": str(ports[0]),
        "BATON_STREAMS": str(STREAMS),
        "BATON_LOG_LEVEL": "WARNING",
    }
    commands = (
        [sys.executable, "-m", "services.producer"],
        [sys.executable, "-m", "bench.plain_http", kafka, str(ports[1]), topics],
    )
    rows = []
    with _started(commands[0], environment, core) as baton, _started(commands[1], environment, core) as plain:
        _await_answer(f"http://127.0.0.1:{ports[0]}/readyz")
        _await_answer(f"http://127.0.0.1:{ports[1]}/")
        for load in LOADS:
            sides = ((ports[0], baton), (ports[1], plain))
            measured: tuple[list[Measured], list[Measured]] = ([], [])
            for number in range(ROUNDS + 1):
                for side, (port, process) in enumerate(sides):
                    result = asyncio.run(_round(load, port, process.pid, ROUND_S if number else WARM_UP_S))
                    if number:
                        measured[side].append(result)
            rows += _rows(load, *measured)
    return rows


def _rows(load: Load, baton: list[Measured], plain: list[Measured]) -> list[Row]:
    return [
        Row(
            name=load.name,
            unit="fragments/s",
            baton=[m.rate for m in baton],
            baseline=[m.rate for m in plain],
            target=load.target,
        ),
        Row(
            name=f"{load.name}, CPU",
            unit="µs/fragment",
            baton=[m.cpu_us for m in baton],
            baseline=[m.cpu_us for m in plain],
            target="(told)",
        ),
    ]


@contextlib.contextmanager
def _started(command: list[str], environment: dict[str, str], core: int) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, env=environment, preexec_fn=lambda: os.sched_setaffinity(0, {core}))
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)


def _await_answer(url: str) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            urllib.request.urlopen(url, timeout=5).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return


async def _round(load: Load, port: int, pid: int, seconds: float) -> Measured:
    requests = _requests(load, port)
    cpu = _cpu_s(pid)
    started = time.perf_counter()
    deadline = started + seconds
    counts = await asyncio.gather(
        *(_send_until(deadline, port, requests[n:] + requests[:n]) for n in range(load.connections))
    )
    elapsed = time.perf_counter() - started
    fragments = sum(counts) * load.batch
    return Measured(rate=fragments / elapsed, cpu_us=(_cpu_s(pid) - cpu) / fragments * 1e6)


async def _send_until(deadline: float, port: int, requests: list[bytes]) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    count = 0
    for request in itertools.cycle(requests):
        if time.perf_counter() > deadline:
            break
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"refused: {head!r}")
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        await reader.readexactly(length)
        count += 1
    writer.close()
    await writer.wait_closed()
    return count


def _requests(load: Load, port: int) -> list[bytes]:
    dice = random.Random(1)
    requests = []
    for _ in range(max(64, load.connections)):
        lines = []
        for _ in range(load.batch):
            time_ms = 1_700_000_000_000 + dice.randrange(10**9)
            line = f'{{"key":"visitor-{dice.randrange(KEYS)}","time":{time_ms},"data":{{"text":"'
            lines.append((line + "x" * (FRAGMENT_BYTES - len(line) - 3) + '"}}').encode())
        body = b"\n".join(lines)
        head = (
            f"POST /fragments HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
            f"Content-Type: application/x-ndjson\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        requests.append(head.encode() + body)
    return requests


def _cpu_s(pid: int) -> float:
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    for row in run():
        for side, values in (("baton", row.baton), ("plain", row.baseline)):
            low, middle, high = min(values), sorted(values)[len(values) // 2], max(values)
            print(f"{row.name:30} {row.unit:12} {side:6} {low:10.1f} {middle:10.1f} {high:10.1f}")
