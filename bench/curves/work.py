"""What one process does in one round: it writes or reads, and measures the rate, its CPU and the latency.

`open` is not measured: connections, metadata, producer ids. Each round has new clients, so that the other
side's clients do not idle beside it.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from bench.curves.clients import DELIVER_S, Groups, Reader, Writer, reader_of, writer_of
from bench.curves.plan import Side
from shared.kafka.connect.cluster import Cluster
from shared.kafka.read.offsets import EARLIEST, LATEST, list_offsets

VALUE: Final = b"x" * 1_000
END: Final = b""
"""Each writer puts one at the end of every topic, for those who read what is being written."""
REQUEST: Final = 100
"""Fragments that are handed over together and await their acknowledgement together."""
REQUESTS: Final = 64
"""So many requests are under way in a writer that goes as fast as it can."""
STUCK_S: Final = 2 * DELIVER_S

Go = Callable[[], Awaitable[None]]
"""Returns when all processes of the round are open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The part of one process in a round.

    `interval_ms`: how long fragments gather before they are handed over or taken; 0: as fast as it goes.
    `gathered_ms`: how long they have gathered in the writer, for the latency of a reader. `writers`: how many
    write what is read; 0: a log that is complete.
    """

    role: Literal["write", "read"]
    side: Side
    kafka: str
    topics: Sequence[str]
    batch_bytes: int
    interval_ms: int = 0
    gathered_ms: int = 0
    rate: float = 0.0
    seconds: float = 1.0
    writers: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What one process did: fragments, seconds, its CPU, and the median latency (0: not measured)."""

    fragments: int
    seconds: float
    cpu_s: float
    latency_ms: float


class Turns:
    """Spreads fragments evenly over the topics, as keys do."""

    def __init__(self, topics: Sequence[str]) -> None:
        self._topics = list(topics)
        self._at = 0

    def next(self, count: int) -> Groups:
        """The topics of the next fragments, and how many each gets.

        >>> turns = Turns(["a", "b", "c"])
        >>> turns.next(4), turns.next(1)
        ([('a', 2), ('b', 1), ('c', 1)], [('b', 1)])
        """
        each, more = divmod(count, len(self._topics))
        first, self._at = self._at, (self._at + count) % len(self._topics)
        turned = self._topics[first:] + self._topics[:first]
        groups = [(topic, each + (n < more)) for n, topic in enumerate(turned)]
        return groups if each else groups[:more]


async def run(job: Job, go: Go) -> Tally:
    """Opens the clients, waits for `go`, does the work."""
    async with asyncio.timeout(STUCK_S):
        return await (_write if job.role == "write" else _read)(job, go)


async def _write(job: Job, go: Go) -> Tally:
    writer = writer_of(job.side, job.kafka, job.batch_bytes)
    try:
        await writer.open(job.topics)
        await writer.write([(topic, 1) for topic in job.topics], VALUE)
        await go()
        began_s, cpu_s = time.monotonic(), time.process_time()
        if job.interval_ms:
            fragments, latencies = await _write_steadily(writer, job)
        else:
            fragments, latencies = await _write_flat_out(writer, job), []
        seconds, cpu_s = time.monotonic() - began_s, time.process_time() - cpu_s
        await writer.write([(topic, 1) for topic in job.topics], END)
    finally:
        await writer.close()
    return _tally(fragments, seconds, cpu_s, latencies)


async def _write_flat_out(writer: Writer, job: Job) -> int:
    """How many fragments were acknowledged."""
    turns, stored, until_s = Turns(job.topics), 0, time.monotonic() + job.seconds

    async def keep_writing() -> None:
        nonlocal stored
        while time.monotonic() < until_s:
            await writer.write(turns.next(REQUEST), VALUE)
            stored += REQUEST

    async with asyncio.TaskGroup() as tasks:
        for _ in range(REQUESTS):
            tasks.create_task(keep_writing())
    return stored


async def _write_steadily(writer: Writer, job: Job) -> tuple[int, list[float]]:
    """How many fragments were acknowledged, and the latencies (ms)."""
    turns, interval_s, began_s = Turns(job.topics), job.interval_ms / 1_000, time.monotonic()
    handed, latencies = 0, list[float]()

    async def hand_over(count: int, due_s: float) -> None:
        await writer.write(turns.next(count), VALUE)
        latencies.append((time.monotonic() - due_s) * 1_000 + job.interval_ms / 2)

    async with asyncio.TaskGroup() as flying:
        for number in range(1, round(job.seconds / interval_s) + 1):
            due_s = began_s + number * interval_s
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            if count := int(number * interval_s * job.rate) - handed:
                handed += count
                flying.create_task(hand_over(count, due_s))
    return handed, latencies


async def _read(job: Job, go: Go) -> Tally:
    reader = reader_of(job.side, job.kafka)
    try:
        await reader.open(job.topics)
        partitions = [(topic, 0) for topic in job.topics]
        async with Cluster(job.kafka) as cluster:
            ends = await list_offsets(cluster, partitions, LATEST)
            starts = ends if job.writers else await list_offsets(cluster, partitions, EARLIEST)
        left = 0 if job.writers else sum(ends.values()) - sum(starts.values())
        seen = Seen(job, left)
        await go()
        began_s, cpu_s = time.monotonic(), time.process_time()
        reader.start({topic: offset for (topic, _), offset in starts.items()})
        await _until_all(seen, _take_steadily(reader, job, seen) if job.interval_ms else reader.follow(seen))
        seconds, cpu_s = time.monotonic() - began_s, time.process_time() - cpu_s
    finally:
        await reader.close()
    return _tally(seen.fragments, seconds, cpu_s, seen.latencies)


class Seen:
    """Counts what is read, until the log's end or the end marker of every writer in every topic."""

    def __init__(self, job: Job, left: int) -> None:
        self.fragments = 0
        self.latencies: list[float] = []
        self.is_all = asyncio.Event()
        self._is_tail = bool(job.writers)
        self._left = job.writers * len(job.topics) if self._is_tail else left
        self._gathered_ms = job.gathered_ms

    def __call__(self, records: Sequence[Any]) -> None:
        """Takes records of one topic."""
        markers = 0
        for record in records:
            if not record.value:
                markers += 1
        self.fragments += len(records) - markers
        middle = records[len(records) // 2]  # the first ones have waited longest
        if self._is_tail and middle.value:
            since_ms = time.time_ns() / 1_000_000 - middle.timestamp
            self.latencies.append(since_ms + self._gathered_ms / 2)
        self._left -= markers if self._is_tail else len(records)
        if self._left <= 0:
            self.is_all.set()


async def _take_steadily(reader: Reader, job: Job, seen: Seen) -> None:
    due_s = time.monotonic()
    while True:
        due_s += job.interval_ms / 1_000
        await asyncio.sleep(max(0.0, due_s - time.monotonic()))
        await reader.take(seen)


async def _until_all(seen: Seen, reading: Awaitable[None]) -> None:
    task = asyncio.ensure_future(reading)
    done = asyncio.ensure_future(seen.is_all.wait())
    await asyncio.wait((task, done), return_when=asyncio.FIRST_COMPLETED)
    task.cancel()
    done.cancel()
    await asyncio.wait((task, done))
    if not task.cancelled():
        task.result()


def _tally(fragments: int, seconds: float, cpu_s: float, latencies: Sequence[float]) -> Tally:
    latency_ms = statistics.median(latencies) if latencies else 0.0
    return Tally(fragments=fragments, seconds=seconds, cpu_s=cpu_s, latency_ms=latency_ms)
