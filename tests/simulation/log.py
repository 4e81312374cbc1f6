"""Kafka in the simulation: a broker that checks every commit it applies, and one process' way to it.

What the broker does is done at once; requests for it travel over a `Wire`. A commit whose request is late
takes effect when it arrives, unless a newer producer of the stream has been started by then.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from services.consumer.core.commits.checkpoint import Checkpoint, Commit, find_head, fold, new_stream
from services.consumer.ports import Fenced
from shared.errors import KafkaUnavailable
from shared.model.fragments import encode_marker
from shared.model.group import GroupSettings
from shared.model.head import Head
from tests.fakes.virtual_time import VirtualLoop
from tests.reference import Rec
from tests.simulation.trace import Trace
from tests.simulation.wire import Wire

T = TypeVar("T")

CALL_S = 1.5
MOST_RECORDS = 7
"""At most so many records come with one fetch, so that positions lie anywhere."""


@dataclass(slots=True)
class Topic:
    """What the broker keeps of one stream: its log, checkpoint records by offset, committed head."""

    log: list[Rec] = field(default_factory=list)
    records: dict[int, bytes] = field(default_factory=dict)
    next_record: int = 0
    head: Head | None = None
    producer: int = 0
    waiting: list[asyncio.Future[None]] = field(default_factory=list)
    writers: dict[int, str] = field(default_factory=dict)
    """Epoch → the process that committed in it."""


class Broker:
    """All streams of one group; `sessions` are the delivered ones, (stream, value), in order.

    `wrong` collects what must never happen: in the simulation it is a failure.
    """

    def __init__(
        self,
        loop: VirtualLoop,
        trace: Trace,
        settings: GroupSettings,
        streams: int,
        now_ms: Callable[[], int],
    ) -> None:
        self.settings = settings
        self.topics = [Topic() for _ in range(streams)]
        self.sessions: list[tuple[int, bytes]] = []
        self.wrong: list[str] = []
        self._loop = loop
        self._trace = trace
        self._now_ms = now_ms

    def append(self, stream: int, key: bytes | None, value: bytes) -> None:
        """Appends a record to the stream's log."""
        topic = self.topics[stream]
        topic.log.append(Rec(len(topic.log), self._now_ms(), key, value))
        waiting, topic.waiting = topic.waiting, []
        for one in waiting:
            _settle(one)

    def start_producer(self, stream: int, process: str) -> int:
        """The number of a new producer of the stream; all earlier ones are fenced from now on."""
        topic = self.topics[stream]
        topic.producer += 1
        self._trace.note(process, "fences", stream, topic.producer)
        return topic.producer

    def head(self, stream: int) -> Head:
        """The committed head."""
        topic = self.topics[stream]
        head = topic.head or find_head(sorted(topic.records.items()))
        return new_stream().head if head is None else head

    def load(self, stream: int, head: Head) -> Checkpoint:
        """The checkpoint that the head points to."""
        if head.checkpoint_from < 0:
            return Checkpoint(head=head)
        records = [
            (o, raw)
            for o, raw in sorted(self.topics[stream].records.items())
            if head.checkpoint_from <= o <= head.newest
        ]
        return fold(head, records, self.settings.repeat_ms)

    def commit(self, stream: int, producer: int, process: str, commit: Commit) -> list[int]:
        """One transaction; in exactly_once the sessions are part of it. Raises Fenced."""
        topic = self.topics[stream]
        if producer != topic.producer:
            self._trace.note(process, "is fenced", stream, commit.head)
            raise Fenced("a newer producer has started")
        offsets = [topic.next_record + n for n in range(len(commit.records))]
        head = commit.head_at(offsets)
        self._check(stream, topic, process, head)
        topic.records.update(zip(offsets, commit.records, strict=True))
        topic.next_record += len(offsets) + 1  # a control record ends the transaction
        topic.head = head
        if self.settings.delivery == "exactly_once":
            self.deliver(stream, commit)
        self._trace.note(
            process, "commits", stream, f"epoch {head.epoch}, seq {head.seq}",
            f"safe {head.safe_offset}, position {head.position}", f"{len(commit.sessions)} sessions",
        )  # fmt: skip
        return offsets

    def deliver(self, stream: int, commit: Commit) -> None:
        """Appends the sessions of a commit to the topic of sessions."""
        self.sessions += [(stream, value) for _, value in commit.sessions]

    def trim(self, stream: int, below: int) -> None:
        """Deletes checkpoint records."""
        topic = self.topics[stream]
        topic.records = {o: raw for o, raw in topic.records.items() if o >= below}

    def _check(self, stream: int, topic: Topic, process: str, head: Head) -> None:
        before = topic.head or new_stream().head
        writer = topic.writers.setdefault(head.epoch, process)
        if writer != process:
            self.wrong.append(f"stream {stream}: both {writer} and {process} committed in epoch {head.epoch}")
        if head.epoch < before.epoch or head.seq != before.seq + 1:
            self.wrong.append(f"stream {stream}: {head} follows {before}")
        if head.safe_offset < before.safe_offset or head.position < before.position:
            self.wrong.append(f"stream {stream}: {head} falls behind {before}")
        if not head.safe_offset <= head.position <= len(topic.log):
            self.wrong.append(f"stream {stream}: {head}, but the log ends at {len(topic.log)}")


class SimulatedReader:
    """A `FragmentReader`: long polls at the broker, a few records at a time."""

    def __init__(self, way: SimulatedStreamLog, stream: int) -> None:
        self._way = way
        self._topic = way.broker.topics[stream]
        self._position = -1
        self._end = -1

    async def bounds(self) -> tuple[int, int]:
        return await self._way.call(lambda: (0, len(self._topic.log)))

    async def open(self, offset: int) -> None:
        self._position = offset

    async def fetch(self, timeout_s: float) -> Sequence[Rec]:
        position = self._position
        try:
            records = await self._way.call(lambda: self._poll(position, timeout_s), timeout_s + 0.5)
        except KafkaUnavailable:
            if self._way.rng.random() < 0.5:
                raise
            return []
        if records:
            self._position = records[-1].offset + 1
        self._end = max(self._end, self._position)
        return records

    def _poll(self, position: int, timeout_s: float) -> list[Rec] | asyncio.Future[list[Rec]]:
        """At the broker: records that are there, or what comes within the time."""
        if position < len(self._topic.log):
            return self._some(position)
        loop = self._way.loop
        appended: asyncio.Future[None] = loop.create_future()
        found: asyncio.Future[list[Rec]] = loop.create_future()
        self._topic.waiting.append(appended)
        over = loop.call_later(timeout_s, _settle, appended)

        def answer(_: asyncio.Future[None]) -> None:
            over.cancel()
            found.set_result(self._some(position))

        appended.add_done_callback(answer)
        return found

    def _some(self, position: int) -> list[Rec]:
        return self._topic.log[position : position + self._way.rng.randint(1, MOST_RECORDS)]

    @property
    def end(self) -> int:
        return self._end

    async def close(self) -> None:
        self._position = -1


class SimulatedSink:
    """A `SessionSink`. `open` fences every sink of the stream that was opened before."""

    def __init__(self, way: SimulatedStreamLog, stream: int) -> None:
        self._way = way
        self._broker = way.broker
        self._stream = stream
        self._producer = 0

    async def prepare(self) -> None:
        await self._way.call(lambda: None)

    async def open(self) -> None:
        self._producer = await self._way.call(
            lambda: self._broker.start_producer(self._stream, self._way.process)
        )

    async def head(self) -> Head:
        return await self._way.call(lambda: self._broker.head(self._stream))

    async def load(self, head: Head) -> Checkpoint:
        return await self._way.call(lambda: self._broker.load(self._stream, head))

    async def commit(self, commit: Commit) -> list[int]:
        way, broker, stream = self._way, self._broker, self._stream
        way.on_commit(stream, commit.head.epoch, 0.0)
        sent_s, waits = way.loop.now_s, True

        def arrive() -> list[int]:
            if waits:
                way.on_commit(stream, commit.head.epoch, way.loop.now_s - sent_s)
            return broker.commit(stream, producer, way.process, commit)

        delivery = broker.settings.delivery
        if delivery == "at_least_once" and commit.sessions:
            await way.call(lambda: broker.deliver(stream, commit))
        producer = self._producer
        try:
            offsets = await way.call(arrive)
        finally:
            waits = False
        if delivery == "at_most_once" and commit.sessions:
            await way.call(lambda: broker.deliver(stream, commit))
        return offsets

    async def tick(self) -> None:
        try:
            await self._way.call(lambda: self._broker.append(self._stream, None, encode_marker(None)))
        except KafkaUnavailable:
            return

    async def trim(self, below: int) -> None:
        try:
            await self._way.call(lambda: self._broker.trim(self._stream, below))
        except KafkaUnavailable:
            return

    async def close(self) -> None:
        return


class SimulatedStreamLog:
    """A `StreamLog`: one process' way to the broker.

    `on_commit(stream, epoch, travelled_s)` sees each commit when it is sent, and when it arrives while its
    sender still waits.
    """

    def __init__(
        self,
        broker: Broker,
        process: str,
        wire: Wire,
        rng: random.Random,
        world: contextvars.Context,
        on_commit: Callable[[int, int, float], None],
    ) -> None:
        self.broker = broker
        self.process = process
        self.rng = rng
        self.on_commit = on_commit
        self.loop = broker._loop
        self._wire = wire
        self._world = world

    async def call(self, effect: Callable[[], T | asyncio.Future[T]], patience_s: float = CALL_S) -> T:
        """One request to the broker."""
        return await self._wire.call(effect, patience_s, self._world)

    def reader(self, stream: int) -> SimulatedReader:
        return SimulatedReader(self, stream)

    def sink(self, stream: int) -> SimulatedSink:
        return SimulatedSink(self, stream)

    async def ends(self, count: int) -> Mapping[int, int]:
        return await self.call(lambda: {n: len(self.broker.topics[n].log) for n in range(count)})

    async def close(self) -> None:
        return


def _settle(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
