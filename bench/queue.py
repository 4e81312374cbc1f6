"""The queue: delays of one client, many clients against a bare app, a million waiting items, and order.

A worker and the bare app (`plain_http.py`, which awaits one send a request) have core 0 to themselves, in
turns; the broker and the clients (`queue_load.py`) share the others. A lease and an ack are one request each,
so a single item costs two; the bare app's request costs one send.
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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from bench.front_door import await_answer, core_apart, started
from bench.idle import cpu_s
from bench.members import memory_mb
from bench.queue_load import QUEUE
from bench.report import Row
from cli.stack.processes.leash import on_leash
from shared.kafka.admin.catalog import TopicSpec
from shared.kafka.admin.topics import ensure_topics
from tests.servers import KafkaServer, free_port, temporary_home

ROUNDS = 5
ROUND_S = 4.0
WAITING = 1_000_000
PUT_AT_ONCE = 2_000
STARTS = 3
TOPIC = "plain.requests"
TEXT = "x" * 80
ORDERED = 20_000
"""Items of a measurement of order."""
LARGE = 500

Found = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A process that is measured."""

    kind: str
    pid: int
    port: int


def run(rounds: int = ROUNDS, seconds: float = ROUND_S, waiting: int = WAITING) -> list[Row]:
    """Measures; takes about five minutes."""
    with core_apart() as core, temporary_home("bench-kafka") as home:
        kafka = KafkaServer(home)
        try:
            kafka.start()
            return [
                *_delays(kafka.address, core, rounds, seconds, waiting),
                *_order(kafka.address, core),
                _large(kafka.address, core),
            ]
        finally:
            kafka.kill()


def _delays(kafka: str, core: int, rounds: int, seconds: float, waiting: int) -> list[Row]:
    with _worker(kafka, core) as side:
        empty_mb = memory_mb(side.pid)
        put_s = _put(side.port, waiting, PUT_AT_ONCE)
        full_mb = memory_mb(side.pid)
    starts = [_start_s(kafka, core) for _ in range(STARTS)]
    with _worker(kafka, core) as queue, _bare(kafka, core) as bare:
        alone = [_round(queue, 1, 1, seconds) for _ in range(rounds)]
        many = _turns([queue, bare], 64, 1, rounds, seconds)
        tens = [_round(queue, 64, 10, seconds) for _ in range(rounds)]
        after_mb = memory_mb(queue.pid)
    return [
        _row("queue, one client: a lease, p50", "ms", alone, lambda one: one["lease_p50_ms"], "≤ 3"),
        _row("queue, one client: an ack, p50", "ms", alone, lambda one: one["ack_p50_ms"], "≤ 3"),
        *_many_rows(many["queue"], many["bare"]),
        _row("queue, 64 clients, tens: items", "1/s", tens, lambda one: 10 * one["ack_rate"], "≥ 12,000"),
        _row("queue, 64 clients, tens: its core busy", "", tens, lambda one: one["busy"]),
        _fact(f"queue: {waiting:,} items put in {PUT_AT_ONCE:,}s", "1/s", [waiting / put_s]),
        _fact(
            f"queue: start on {waiting:,} waiting items, to the first lease",
            "s",
            [one for one, _ in starts],
            "< 2",
        ),
        _fact("queue: that start, CPU of the worker", "s", [used for _, used in starts]),
        _fact("queue: memory of an idle worker", "MB", [empty_mb]),
        _fact("queue: memory of a worker that put them", "MB", [full_mb]),
        _fact("queue: memory of a worker after the rounds", "MB", [after_mb]),
    ]


def _many_rows(queue: list[Found], bare: list[Found]) -> list[Row]:
    def against(what: str, unit: str, value: Callable[[Found], float], target: str = "") -> Row:
        return Row(
            name=f"queue, 64 clients, single items: {what}, against bare",
            unit=unit,
            baton=[value(one) for one in queue],
            baseline=[value(one) for one in bare],
            target=target,
        )

    return [
        against("requests", "1/s", lambda one: one["rate"], "≥ 0.8 ×"),
        against("CPU of a request", "µs", lambda one: one["cpu_us"]),
        against("its core busy", "", lambda one: one["busy"]),
        _row("queue, 64 clients, single items: items", "1/s", queue, lambda one: one["ack_rate"]),
        _row("queue, 64 clients, single items: a lease, p50", "ms", queue, lambda one: one["lease_p50_ms"]),
        _row("queue, 64 clients, single items: a lease, p99", "ms", queue, lambda one: one["lease_p99_ms"]),
    ]


def _order(kafka: str, core: int) -> list[Row]:
    """How far items are from their places: one worker and three, one partition and four, some given back."""
    rows = []
    for workers, partitions, late in ((1, 1, 0.0), (3, 1, 0.0), (3, 1, 0.01), (3, 4, 0.0)):
        namespace = f"order-{workers}-{partitions}-{int(late * 100)}"
        with contextlib.ExitStack() as stack:
            sides = [stack.enter_context(_worker(kafka, core, namespace, partitions)) for _ in range(workers)]
            _put(sides[0].port, ORDERED, 10)
            ports = ",".join(str(side.port) for side in sides)
            found = _load("queue", ports, 30, 1, ROUND_S, late)
        given_back = f", {late:.0%} given back" if late else ""
        name = f"queue, order: mean distance, {workers} workers, {partitions} partitions{given_back}"
        rows.append(_fact(name, "items", [found["distance"]]))
    return rows


def _large(kafka: str, core: int) -> Row:
    """Memory of a worker whose clients hold many large items, and do not let go."""
    with _worker(kafka, core, "large") as side, httpx.Client(timeout=60) as http:
        url = f"http://127.0.0.1:{side.port}/queues/{QUEUE}"
        item = b'{"data":"%b"}' % (b"x" * 1_000_000)
        json_type = {"content-type": "application/json"}
        for _ in range(LARGE // 2):
            http.post(f"{url}/items", content=b"[%b,%b]" % (item, item), headers=json_type).raise_for_status()
        held = 0
        while held < LARGE:
            answer = http.post(f"{url}/lease", json={"max": 100, "lease_s": 3_600, "wait_s": 5})
            held += len(answer.json()["items"])
        return _fact(f"queue: memory of a worker, {LARGE} items of 1 MB leased", "MB", [memory_mb(side.pid)])


@contextlib.contextmanager
def _worker(kafka: str, core: int, namespace: str = "bench", partitions: int = 1) -> Iterator[Side]:
    """A worker with the queue, ready."""
    port = free_port()
    with started(["services.queue"], _environment(kafka, port, namespace), core) as process:
        await_answer(f"http://127.0.0.1:{port}/readyz")
        url = f"http://127.0.0.1:{port}/queues/{QUEUE}"
        httpx.put(url, json={"partitions": partitions}, timeout=30).raise_for_status()
        yield Side(kind="queue", pid=process.pid, port=port)


def _environment(kafka: str, port: int, namespace: str) -> dict[str, str]:
    own = {"BATON_KAFKA": kafka, "BATON_PORT": str(port), "BATON_NAMESPACE": namespace}
    return os.environ | own | {"BATON_LOG_LEVEL": "WARNING"}


@contextlib.contextmanager
def _bare(kafka: str, core: int) -> Iterator[Side]:
    asyncio.run(ensure_topics(kafka, [TopicSpec(name=TOPIC, configs={})], 1))
    port = free_port()
    with started(["bench.plain_http", kafka, str(port), TOPIC], os.environ, core) as process:
        await_answer(f"http://127.0.0.1:{port}/")
        yield Side(kind="bare", pid=process.pid, port=port)


def _put(port: int, count: int, at_once: int) -> float:
    """Seconds that it took to put so many items, numbered."""
    began_s = time.perf_counter()
    with httpx.Client(base_url=f"http://127.0.0.1:{port}/queues/{QUEUE}", timeout=60) as http:
        for first in range(0, count, at_once):
            items = ",".join(
                f'{{"data":{{"n":{n},"text":"{TEXT}"}}}}' for n in range(first, min(count, first + at_once))
            )
            json_type = {"content-type": "application/json"}
            http.post("/items", content=f"[{items}]", headers=json_type).raise_for_status()
    return time.perf_counter() - began_s


def _start_s(kafka: str, core: int) -> tuple[float, float]:
    """Seconds from the start of a process to the first item that it hands out, and of its CPU."""
    port = free_port()
    began_s = time.perf_counter()
    with started(["services.queue"], _environment(kafka, port, "bench"), core) as process:
        url = f"http://127.0.0.1:{port}/queues/{QUEUE}/lease"
        while True:
            with contextlib.suppress(httpx.TransportError):
                answer = httpx.post(url, json={"lease_s": 1}, timeout=30)
                if answer.status_code == 200 and answer.json()["items"]:
                    return time.perf_counter() - began_s, cpu_s(process.pid)
            time.sleep(0.01)


def _turns(sides: Sequence[Side], connections: int, most: int, rounds: int, seconds: float) -> dict[str, Any]:
    """A short round of each to warm up, then all in turns."""
    found: dict[str, list[Found]] = {side.kind: [] for side in sides}
    for number in range(rounds + 1):
        for side in sides:
            measured = _round(side, connections, most, seconds if number else seconds / 4)
            if number:
                found[side.kind].append(measured)
    return found


def _round(side: Side, connections: int, most: int, seconds: float) -> Found:
    before_s = cpu_s(side.pid)
    found = _load(side.kind, str(side.port), connections, most, seconds)
    used_s = cpu_s(side.pid) - before_s
    return found | {"busy": used_s / found["seconds"], "cpu_us": used_s / found["answers"] * 1e6}


def _load(kind: str, ports: str, connections: int, most: int, seconds: float, late: float = 0.0) -> Found:
    arguments = [kind, ports, connections, most, seconds, late]
    argv = on_leash([sys.executable, "-m", "bench.queue_load", *map(str, arguments)])
    printed = subprocess.run(argv, check=True, stdout=subprocess.PIPE, timeout=seconds + 60).stdout
    found: Found = json.loads(printed)
    return found


def _row(name: str, unit: str, found: list[Found], value: Callable[[Found], float], target: str = "") -> Row:
    return _fact(name, unit, [value(one) for one in found], target)


def _fact(name: str, unit: str, values: list[float], target: str = "") -> Row:
    return Row(name=name, unit=unit, baton=values, baseline=[], target=target)


def main(rounds: int, seconds: float, waiting: int) -> None:
    """Prints the rows; for a quick look, with fewer rounds."""
    for row in run(rounds, seconds, waiting):
        shown = [
            f"{statistics.median(values):.4g} ({min(values):.4g} … {max(values):.4g})" if values else ""
            for values in (row.baton, row.baseline)
        ]
        ratios = [mine / other for mine, other in zip(row.baton, row.baseline, strict=False)]
        ratio = f"{statistics.median(ratios):.3g}" if ratios else ""
        print(f"{row.name:72} {row.unit:5} {shown[0]:>30} {shown[1]:>30} {ratio:>6} {row.target}")


if __name__ == "__main__":
    main(
        int((sys.argv[1:] or ["5"])[0]),
        float((sys.argv[2:] or ["4"])[0]),
        int((sys.argv[3:] or [str(WAITING)])[0]),
    )
