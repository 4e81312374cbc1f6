"""The grid of the work that this system comes from, against plain aiokafka: `make bench-grid`.

`python -m bench.grid` measures every point (`bench/curves/plan.py`), each side in processes of its own, in
turns. It stores the values in `docs/grid/`, and renews the tables in `docs/performance.md`. `--quick`
measures only the ends of each curve; `--tables` measures nothing and renews the tables.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from aiokafka.admin import AIOKafkaAdminClient
from rich.console import Console
from rich.progress import track

from bench.curves.clients import DELIVER_S, KEY
from bench.curves.crew import Crew
from bench.curves.page import renew
from bench.curves.plan import BROKERS, SIDES, STEADY_RATE, TOPICS, Point, Side, order_of, plan
from bench.curves.results import Measured, Results, Sample, read_results, write_results
from bench.curves.work import VALUE, Job, Tally
from bench.machine import machine
from shared.errors import KafkaUnavailable
from shared.kafka.admin.catalog import TopicSpec
from shared.kafka.admin.topics import ensure_topics
from shared.kafka.connect.cluster import Cluster
from shared.kafka.read.offsets import LATEST, list_offsets
from shared.kafka.record import Record
from shared.kafka.send.sender import Sender
from tests.kafka_cluster import KafkaCluster
from tests.servers import KafkaServer, temporary_home

DOCS: Final = Path(__file__).parents[1] / "docs"
PAGE: Final = DOCS / "performance.md"
FOLDER: Final = DOCS / "grid"
RESULTS: Final = FOLDER / "grid.csv"
ROUNDS: Final = 3
ROUND_S: Final = 0.75
WARM_UPS: Final = 3
LOG_FRAGMENTS: Final = 100_000
"""About half a second of reading."""
FILLED_AT_ONCE: Final = 10_000
LED_S: Final = 120.0
SESSION_TIMEOUT_MS: Final = 30_000
NEUTRAL_INTERVAL_MS: Final = 5
"""For readers that take at intervals, plain aiokafka writes on both sides, and is not counted."""


class Topics:
    """The topics that each side writes to, and those of the log that both read; older ones are deleted."""

    def __init__(self, kafka: str, brokers: int) -> None:
        self._kafka, self._brokers = kafka, brokers
        self._present: dict[str, tuple[object, list[str]]] = {}

    def __repr__(self) -> str:
        return f"<Topics on {self._brokers} brokers: {', '.join(self._present)}>"

    def of(self, point: Point, side: Side) -> list[str]:
        """The topics of this side, once they are prepared."""
        return self._present["log" if point.reads_log else side][1]

    async def prepare(self, point: Point) -> bool:
        """Creates what the point needs, and fills the log; whether there was anything to do."""
        if not point.reads_log:
            return any([await self._renew(side, point.topics, point.topics) for side in SIDES])
        is_new = await self._renew("log", (point.topics, point.batch_bytes), point.topics)
        if is_new:
            await self._fill(self._present["log"][1], point.batch_bytes)
        return is_new

    async def _renew(self, name: str, key: object, count: int) -> bool:
        present, topics = self._present.get(name, (None, []))
        if present == key:
            return False
        if topics:
            await self._delete(topics)
        topics = [f"{name}-{time.time_ns()}-{n}" for n in range(count)]
        await ensure_topics(self._kafka, [TopicSpec(name=topic) for topic in topics], self._brokers)
        await self._until_led(topics)
        self._present[name] = key, topics
        return True

    async def _until_led(self, topics: Sequence[str]) -> None:
        """Waits for leaders, which new topics lack for seconds."""
        async with Cluster(self._kafka) as cluster, asyncio.timeout(LED_S):
            while True:
                with contextlib.suppress(KafkaUnavailable):
                    await list_offsets(cluster, [(topic, 0) for topic in topics], LATEST)
                    return

    async def _delete(self, topics: list[str]) -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=self._kafka)
        await admin.start()
        try:
            await admin.delete_topics(topics)
        finally:
            await admin.close()

    async def _fill(self, topics: Sequence[str], batch_bytes: int) -> None:
        each = LOG_FRAGMENTS // len(topics)
        some = max(1, FILLED_AT_ONCE // each)
        async with Cluster(self._kafka) as cluster:
            await cluster.know(topics)
            sender = Sender(cluster, deliver_s=DELIVER_S, max_batch_bytes=batch_bytes)
            for at in range(0, len(topics), some):
                records: list[Record] = [(KEY, VALUE, [])] * each
                await asyncio.gather(*(sender.send((t, 0), records) for t in topics[at : at + some]))
            await sender.close()


def jobs_of(point: Point, side: Side, kafka: str, topics: list[str]) -> tuple[list[Job], list[Job]]:
    """The jobs of the writers and of the readers; the readers share the topics."""
    is_neutral = point.work == "read"
    gathered_ms = NEUTRAL_INTERVAL_MS if is_neutral else point.interval_ms
    writer = Job(
        role="write",
        side="aiokafka" if is_neutral else side,
        kafka=kafka,
        topics=topics,
        batch_bytes=point.batch_bytes,
        interval_ms=gathered_ms if point.interval_ms else 0,
        rate=STEADY_RATE,
        seconds=ROUND_S,
    )
    readers = [
        Job(
            role="read",
            side=side,
            kafka=kafka,
            topics=topics[n :: point.readers],
            batch_bytes=point.batch_bytes,
            interval_ms=point.interval_ms if is_neutral else 0,
            gathered_ms=gathered_ms,
            writers=point.writers,
        )
        for n in range(point.readers)
    ]
    return [writer] * point.writers, readers


def measured(point: Point, writers: Sequence[Tally], readers: Sequence[Tally]) -> Measured:
    """One round. For both, a fragment counts once it has been read, and costs the CPU of both."""
    counted = {"write": writers, "read": readers, "both": readers}[point.work]
    paid = [*writers, *readers] if point.work == "both" else counted
    fragments = sum(tally.fragments for tally in counted)
    latencies = [tally.latency_ms for tally in counted]
    return Measured(
        rate=fragments / max(tally.seconds for tally in counted),
        cpu_us=sum(tally.cpu_s for tally in paid) / fragments * 1e6,
        latency_ms=sum(latencies) / len(latencies) if point.interval_ms else 0.0,
    )


def measure(points: Sequence[Point], rounds: int, shown: Console) -> Iterator[Sample]:
    """The samples, one after another."""
    for brokers in dict.fromkeys(point.brokers for point in points):
        mine = [point for point in points if point.brokers == brokers]
        with _kafka(brokers) as kafka, Crew() as crew:
            topics = Topics(kafka, brokers)
            for point in track(mine, f"brokers: {brokers}", console=shown):
                _prepare(crew, topics, kafka, point)
                for number in range(rounds):
                    for side in order_of(number):
                        found = _round(crew, topics, kafka, point, side)
                        yield Sample(point=point, side=side, round=number, measured=found)


def _prepare(crew: Crew, topics: Topics, kafka: str, point: Point) -> None:
    """Brokers are slow for a while after they have created topics, so the first rounds do not count."""
    if asyncio.run(topics.prepare(point)):
        flat_out = dataclasses.replace(point, curve="clients", work="write", value=1)
        for _ in range(WARM_UPS):
            for side in SIDES:
                _round(crew, topics, kafka, point if point.reads_log else flat_out, side)


def _round(crew: Crew, topics: Topics, kafka: str, point: Point, side: Side) -> Measured:
    jobs = jobs_of(point, side, kafka, topics.of(point, side))
    return measured(point, *crew.work(*jobs))


@contextlib.contextmanager
def _kafka(brokers: int) -> Iterator[str]:
    with temporary_home("grid") as home:
        servers = (
            KafkaServer(home)
            if brokers == 1
            # the tests want a lost broker to be noticed soon; here a busy one must not seem lost
            else KafkaCluster(home, brokers, broker_session_timeout_ms=SESSION_TIMEOUT_MS)
        )
        try:
            servers.start()
            yield servers.address
        finally:
            servers.kill()


def _about(form: str) -> str:
    """Where figures come from that are about to be measured."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    commit = described.stdout.strip() or "unknown"
    return f"{form}, {datetime.now(UTC):%-d %B %Y}, commit {commit}; {machine()}"


def main(arguments: list[str]) -> int:
    """Runs the command line; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.grid", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="only the ends of each curve")
    parser.add_argument("--tables", action="store_true", help="measure nothing, renew the tables")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of each side at each point")
    parser.add_argument("--brokers", type=int, nargs="+", choices=BROKERS, default=BROKERS)
    parser.add_argument("--topics", type=int, nargs="+", choices=TOPICS, default=TOPICS)
    options = parser.parse_args(arguments)
    console = Console()
    if not options.tables:
        points = plan(options.brokers, options.topics, quick=options.quick)
        form = "the whole grid" if points == plan(quick=False) else "a part of the grid"
        about = _about(f"{form}, rounds: {options.rounds}")
        samples: list[Sample] = []
        try:
            samples += measure(points, options.rounds, console)
        finally:  # a run that breaks off keeps what it has measured
            if samples:
                FOLDER.mkdir(exist_ok=True)
                write_results(RESULTS, Results(about=about, samples=samples))
    publish(read_results(RESULTS), console)
    return 0


def publish(results: Results, console: Console) -> None:
    """Renews the page."""
    PAGE.write_text(renew(PAGE.read_text(encoding="utf-8"), results), encoding="utf-8")
    for path in (RESULTS, PAGE):
        console.print(os.path.relpath(path))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
