"""Kafka in memory, under the contract of `services/consumer/ports.py`: one twin for units and simulation.

`InMemoryLog` is the broker; whatever it does happens at once. `InMemoryStreamLog` is one member's way to it:
every request goes through `call`, which the simulation overrides with its faulty wire. A unit test makes
requests fail at the broker: `lose` drops the answer to the next commit before or after it takes effect, or
between its two parts where the delivery has two; while `mute` is set, nothing answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeVar

from services.consumer.core.commits.checkpoint import (
    Checkpoint,
    check_reaches,
    find_head,
    folding_records,
    new_stream,
)
from services.consumer.core.commits.commit import Commit
from services.consumer.core.slices import at_once
from services.consumer.ports import Fenced
from shared.errors import KafkaUnavailable
from shared.model.fragments import encode_marker
from shared.model.group import GroupSettings
from shared.model.head import Head
from shared.model.start import Cut
from tests.reference import Rec

T = TypeVar("T")
Loss = Literal["before", "between", "after"]

CALL_S = 1.5
"""A request without an answer fails after this time."""


class Fetched(NamedTuple):
    """The answer to a fetch: records, where the next fetch begins, the end of the log, and the link."""

    records: Sequence[Rec]
    position: int
    end: int
    link: int


@dataclass(slots=True)
class StoredStream:
    """What the broker keeps of one stream: its log, checkpoint records by offset, committed head.

    `link`: how often its readers had to connect anew. `read_to`: the next offset that no reader of a test has
    got. `first_record`: where the checkpoints begin. `producer`: the number of its newest producer.
    `writers`: epoch → the process that committed in it.
    """

    log: list[Rec] = field(default_factory=list)
    first: int = 0
    link: int = 0
    read_to: int = 0
    first_record: int = 0
    records: dict[int, bytes] = field(default_factory=dict)
    next_record: int = 0
    head: Head | None = None
    producer: int = 0
    writers: dict[int, str] = field(default_factory=dict)
    waiting: list[asyncio.Future[None]] = field(default_factory=list)
    whole: list[Rec] | None = None
    """The log as it was before a part was lost."""

    @property
    def end(self) -> int:
        """The next offset to be written."""
        return self.first + len(self.log)


@dataclass(slots=True)
class InMemoryLog:
    """The broker of one group; `sessions` are the delivered ones, (stream, value), in order.

    `others`: the brokers of other groups, by group. `wrong` collects what a commit must never do.
    `note(process, what, *details)` observes fences and commits.
    """

    settings: GroupSettings
    now_ms: Callable[[], int] = lambda: 0
    streams: dict[int, StoredStream] = field(default_factory=dict)
    sessions: list[tuple[int, bytes]] = field(default_factory=list)
    lose: list[Loss] = field(default_factory=list)
    mute: bool = False
    commits: int = 0
    wrong: list[str] = field(default_factory=list)
    others: dict[str, InMemoryLog] = field(default_factory=dict)
    note: Callable[..., None] = lambda process, what, *details: None

    def stored(self, stream: int) -> StoredStream:
        """A stream's store, created on first use."""
        return self.streams.setdefault(stream, StoredStream())

    def append(self, stream: int, key: bytes | None, value: bytes, at_ms: int | None = None) -> int:
        """Appends a record; its offset."""
        stored = self.stored(stream)
        offset = stored.end
        if stored.whole is not None:
            return offset  # what is appended to a lost log is lost with it
        stored.log.append(Rec(offset, self.now_ms() if at_ms is None else at_ms, key, value))
        waiting, stored.waiting = stored.waiting, []
        for one in waiting:
            _settle(one)
        return offset

    def retain_from(self, stream: int, first: int) -> None:
        """Retention removes what lies below an offset."""
        stored = self.stored(stream)
        del stored.log[: max(0, first - stored.first)]
        stored.first = max(first, stored.first)

    def lose_end(self, stream: int, keep: int) -> None:
        """The log loses its records from offset `keep` on; its readers must connect anew."""
        stored = self.stored(stream)
        del stored.log[max(0, keep - stored.first) :]
        stored.link += 1

    def start_over(self, stream: int) -> None:
        """What an operator does when the log was lost: deletes the committed offset and the checkpoints.

        No earlier owner writes afterwards: all members have stopped.
        """
        stored = self.stored(stream)
        stored.head, stored.records = None, {}
        stored.first_record = stored.next_record
        stored.producer += 1
        stored.writers.clear()

    def lose_checkpoints(self, stream: int) -> None:
        """The checkpoints topic was deleted and created anew; the committed offset is still there."""
        stored = self.stored(stream)
        stored.records, stored.first_record, stored.next_record = {}, 0, 0

    def lose_from(self, stream: int, first: int) -> None:
        """The log's records from an offset on are lost, until `restore`."""
        stored = self.stored(stream)
        stored.whole = stored.log
        stored.log = stored.log[: max(0, first - stored.first)]
        stored.link += 1

    def restore(self, stream: int) -> None:
        """An operator restores a lost log."""
        stored = self.stored(stream)
        if stored.whole is not None:
            stored.log, stored.whole = stored.whole, None
            stored.link += 1

    def fetch(self, stream: int, position: int, most: int | None) -> Fetched:
        """At most `most` records from the position on; like Kafka's reset, it skips to where the log is."""
        stored = self.stored(stream)
        position = min(max(position, stored.first), stored.end)
        records = stored.log[position - stored.first :][:most]
        return Fetched(records, position + len(records), stored.end, stored.link)

    def poll(
        self, stream: int, position: int, timeout_s: float, most: Callable[[], int | None]
    ) -> Fetched | asyncio.Future[Fetched]:
        """`fetch`, answered when there is a record or after `timeout_s`."""
        stored = self.stored(stream)
        if position < stored.end:
            return self.fetch(stream, position, most())
        loop = asyncio.get_running_loop()
        appended: asyncio.Future[None] = loop.create_future()
        found: asyncio.Future[Fetched] = loop.create_future()
        stored.waiting.append(appended)
        timer = loop.call_later(timeout_s, _settle, appended)

        def answer(_: asyncio.Future[None]) -> None:
            timer.cancel()
            if not found.done():
                found.set_result(self.fetch(stream, position, most()))

        appended.add_done_callback(answer)
        return found

    def start_producer(self, stream: int, process: str) -> int:
        """The number of a new producer of the stream; it fences all earlier ones."""
        stored = self.stored(stream)
        stored.producer += 1
        self.note(process, "fences", stream, stored.producer)
        return stored.producer

    def head(self, stream: int) -> Head:
        """The committed head, found among the checkpoint records where Kafka has forgotten it."""
        stored = self.stored(stream)
        head = stored.head or find_head(sorted(stored.records.items()))
        if head is None:
            return new_stream(stored.first_record).head
        check_reaches(head, stored.next_record)
        return head

    def load(self, stream: int, head: Head) -> Checkpoint:
        """The checkpoint that the head points to."""
        if head.checkpoint_from < 0:
            return Checkpoint(head=head)
        records = sorted(self.stored(stream).records.items())
        kept = [(o, raw) for o, raw in records if head.checkpoint_from <= o <= head.newest]
        return at_once(folding_records(head, kept, self.settings.repeat_ms))

    def commit(self, stream: int, producer: int, process: str, commit: Commit) -> list[int]:
        """One transaction; in exactly_once the sessions are part of it. Raises Fenced."""
        stored = self.stored(stream)
        if producer != stored.producer:
            self.note(process, "is fenced", stream, commit.head)
            raise Fenced("a newer producer has started")
        offsets = [stored.next_record + n for n in range(len(commit.records))]
        head = commit.head_at(offsets)
        self._check(stream, process, head)
        if stored.head is not None and head.position == stored.head.position and commit.sessions:
            self.note(process, "commits a part", stream, f"at {head.position}")
        stored.records.update(zip(offsets, commit.records, strict=True))
        stored.next_record += len(offsets) + 1  # a control record ends the transaction
        stored.head = head
        self.commits += 1
        if self.settings.delivery == "exactly_once":
            self.deliver(stream, commit)
        self.note(
            process, "commits", stream, f"epoch {head.epoch}, seq {head.seq}",
            f"safe {head.safe_offset}, position {head.position}", f"{len(commit.sessions)} sessions",
        )  # fmt: skip
        return offsets

    def deliver(self, stream: int, commit: Commit) -> None:
        """Appends the sessions of a commit to the sessions topic."""
        self.sessions += [(stream, value) for _, value in commit.sessions]

    def trim(self, stream: int, below: int) -> None:
        """Deletes checkpoint records below an offset."""
        stored = self.stored(stream)
        stored.records = {o: raw for o, raw in stored.records.items() if o >= below}

    def _check(self, stream: int, process: str, head: Head) -> None:
        stored = self.stored(stream)
        before = stored.head or new_stream().head
        writer = stored.writers.setdefault(head.epoch, process)
        if writer != process:
            self.wrong.append(f"stream {stream}: both {writer} and {process} committed in epoch {head.epoch}")
        if head.epoch < before.epoch or head.seq != before.seq + 1:
            self.wrong.append(f"stream {stream}: {head} follows {before}")
        if any(
            getattr(head, name) < getattr(before, name) for name in ("safe_offset", "position", "silent_to")
        ):
            self.wrong.append(f"stream {stream}: {head} falls behind {before}")
        end = stored.end if stored.whole is None else stored.first + len(stored.whole)
        if not max(head.safe_offset, head.silent_to) <= head.position <= end:
            self.wrong.append(f"stream {stream}: {head}, but the log ends at {stored.end}")


class InMemoryReader:
    """A `FragmentReader`: long polls at the broker."""

    def __init__(self, log: InMemoryStreamLog, stream: int) -> None:
        self._log = log
        self._stream = stream
        self._position = self._end = -1
        self._link: int | None = None
        """The link of the last records; None before the first ones since `open`."""

    async def bounds(self) -> tuple[int, int]:
        stored = self._log.broker.stored(self._stream)
        return await self._log.call(lambda: (stored.first, stored.end))

    async def open(self, offset: int) -> None:
        self._position, self._link = offset, None

    async def fetch(self, timeout_s: float) -> Sequence[Rec]:
        log, position = self._log, self._position
        found = await log.call(
            lambda: log.broker.poll(self._stream, position, timeout_s, log.most_records), timeout_s + 0.5
        )
        self._end = max(self._end, found.end)
        if found.records and self._link not in (None, found.link):
            await self.open(position - 1)  # as on Kafka: begin one record before
            return []
        self._position = found.position
        if found.records:
            self._link = found.link
        return found.records

    @property
    def end(self) -> int:
        return self._end

    async def close(self) -> None:
        self._position = -1


class InMemorySink:
    """A `SessionSink`: `open` fences every sink of the stream opened before."""

    def __init__(self, log: InMemoryStreamLog, stream: int) -> None:
        self._log = log
        self._broker = log.broker
        self._stream = stream
        self._producer = 0

    async def prepare(self) -> None:
        await self._log.call(lambda: None)

    async def open(self) -> None:
        self._producer = await self._log.call(
            lambda: self._broker.start_producer(self._stream, self._log.process)
        )

    async def head(self) -> Head:
        return await self._log.call(lambda: self._broker.head(self._stream))

    async def load(self, head: Head) -> Checkpoint:
        return await self._log.call(lambda: self._broker.load(self._stream, head))

    @property
    def records_read(self) -> int:
        return 0  # a load is one answer

    async def commit(self, commit: Commit) -> list[int]:
        broker, delivery = self._broker, self._broker.settings.delivery
        loss = broker.lose.pop(0) if broker.lose else None
        if loss == "before" or (loss == "between" and delivery == "exactly_once"):
            raise KafkaUnavailable("no answer to a commit")
        if delivery == "at_least_once":
            await self._deliver(commit)
            _check_answer(loss, "between")
        offsets = await self._transact(commit)
        if delivery == "at_most_once":
            _check_answer(loss, "between")
            await self._deliver(commit)
        _check_answer(loss, "after")
        return offsets

    async def _deliver(self, commit: Commit) -> None:
        if commit.sessions:
            await self._log.call(lambda: self._broker.deliver(self._stream, commit))

    async def _transact(self, commit: Commit) -> list[int]:
        producer, process = self._producer, self._log.process
        return await self._log.call(lambda: self._broker.commit(self._stream, producer, process, commit))

    async def tick(self) -> None:
        await self._attempt(lambda: self._broker.append(self._stream, None, encode_marker(None)))

    async def trim(self, below: int) -> None:
        await self._attempt(lambda: self._broker.trim(self._stream, below))

    async def _attempt(self, effect: Callable[[], Any]) -> None:
        """A request whose failure is not an error."""
        try:
            await self._log.call(effect)
        except KafkaUnavailable:
            return

    async def close(self) -> None:
        await asyncio.sleep(0)


class InMemoryStreamLog:
    """A `StreamLog`: one process' way to a shared broker."""

    def __init__(self, broker: InMemoryLog, process: str = "") -> None:
        self.broker = broker
        self.process = process

    async def call(self, effect: Callable[[], T | asyncio.Future[T]], patience_s: float = CALL_S) -> T:
        """One request: its effect at the broker, and the answer. Raises KafkaUnavailable."""
        await asyncio.sleep(0)
        if self.broker.mute:
            raise KafkaUnavailable("the broker is mute")
        answer = effect()
        return await answer if isinstance(answer, asyncio.Future) else answer

    def most_records(self) -> int | None:
        """How many records the next fetch may return; None: all."""
        return None

    def reader(self, stream: int) -> InMemoryReader:
        return InMemoryReader(self, stream)

    def sink(self, stream: int) -> InMemorySink:
        return InMemorySink(self, stream)

    async def delivered(self, cut: Cut, stream: int, start: int) -> AsyncIterator[bytes]:
        broker = self.broker.others.get(cut.group)
        for _, value in await self.call(lambda: list(broker.sessions) if broker is not None else []):
            yield value

    async def ends(self, streams: Collection[int]) -> Mapping[int, int]:
        return await self.call(lambda: {n: self.broker.stored(n).end for n in streams})

    async def close(self) -> None:
        await asyncio.sleep(0)


def _check_answer(loss: Loss | None, moment: Loss) -> None:
    if loss == moment:
        raise KafkaUnavailable(f"the answer to a commit was lost {moment} its parts")


def _settle(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
