"""Kafka in memory: the log, its transactions and their fencing, under the contract of
`services/consumer/ports.py`.

`InMemoryLog` is the broker, `InMemoryStreamLog` one member's way to it. A test can let it fail: `lose` takes
the answer of the next commit before or after it took effect, or between its two parts where the delivery
has two, `mute` lets everything time out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from services.consumer.core.commits.checkpoint import Checkpoint, Commit, find_head, fold, new_stream
from services.consumer.ports import Fenced
from shared.errors import KafkaUnavailable
from shared.model.fragments import encode_marker
from shared.model.group import GroupSettings
from shared.model.head import Head
from tests.reference import Rec

Loss = Literal["before", "between", "after"]


@dataclass(slots=True)
class StoredStream:
    """What the broker keeps of one stream: its log, checkpoint records by offset, committed head."""

    log: list[Rec] = field(default_factory=list)
    first: int = 0
    records: dict[int, bytes] = field(default_factory=dict)
    next_record: int = 0
    head: Head | None = None
    producer_epoch: int = 0
    appended: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True)
class InMemoryLog:
    """The broker of one group; `sessions` are the delivered ones, (stream, value), in order."""

    settings: GroupSettings
    now_ms: Callable[[], int] = lambda: 0
    streams: dict[int, StoredStream] = field(default_factory=dict)
    sessions: list[tuple[int, bytes]] = field(default_factory=list)
    lose: list[Loss] = field(default_factory=list)
    mute: bool = False
    commits: int = 0

    def stored(self, stream: int) -> StoredStream:
        """A stream's store, made when it is first asked for."""
        return self.streams.setdefault(stream, StoredStream())

    def append(self, stream: int, key: bytes | None, value: bytes, at_ms: int | None = None) -> int:
        """Appends a record; its offset."""
        stored = self.stored(stream)
        offset = stored.first + len(stored.log)
        stored.log.append(Rec(offset, self.now_ms() if at_ms is None else at_ms, key, value))
        stored.appended.set()
        return offset

    def retain_from(self, stream: int, first: int) -> None:
        """Retention removes what lies below an offset."""
        stored = self.stored(stream)
        del stored.log[: max(0, first - stored.first)]
        stored.first = max(first, stored.first)

    def check_reachable(self) -> None:
        """Raises what a mute broker amounts to."""
        if self.mute:
            raise KafkaUnavailable("the broker is mute")


class InMemoryReader:
    """A `FragmentReader`."""

    def __init__(self, broker: InMemoryLog, stream: int) -> None:
        self._broker = broker
        self._stored = broker.stored(stream)
        self._position = -1

    async def bounds(self) -> tuple[int, int]:
        await asyncio.sleep(0)
        self._broker.check_reachable()
        return self._stored.first, self._end

    async def open(self, offset: int) -> None:
        self._position = offset

    async def fetch(self, timeout_s: float) -> Sequence[Rec]:
        await asyncio.sleep(0)
        self._broker.check_reachable()
        if self._position >= self._end:
            self._stored.appended.clear()
            try:
                async with asyncio.timeout(timeout_s):
                    await self._stored.appended.wait()
            except TimeoutError:
                return []
        self._position = max(self._position, self._stored.first)
        records = self._stored.log[self._position - self._stored.first :]
        self._position = self._end
        return list(records)

    @property
    def end(self) -> int:
        return self._end if self._position >= 0 else -1

    async def close(self) -> None:
        self._position = -1

    @property
    def _end(self) -> int:
        return self._stored.first + len(self._stored.log)


class InMemorySink:
    """A `SessionSink`: `open` fences every sink of the stream opened before."""

    def __init__(self, broker: InMemoryLog, stream: int) -> None:
        self._broker = broker
        self._stream = stream
        self._stored = broker.stored(stream)
        self._epoch = 0

    async def prepare(self) -> None:
        await asyncio.sleep(0)
        self._broker.check_reachable()

    async def open(self) -> None:
        await asyncio.sleep(0)
        self._broker.check_reachable()
        self._stored.producer_epoch += 1
        self._epoch = self._stored.producer_epoch

    async def head(self) -> Head:
        await asyncio.sleep(0)
        self._broker.check_reachable()
        head = self._stored.head or find_head(sorted(self._stored.records.items()))
        return new_stream().head if head is None else head

    async def load(self, head: Head) -> Checkpoint:
        await asyncio.sleep(0)
        self._broker.check_reachable()
        if head.checkpoint_from < 0:
            return Checkpoint(head=head)
        records = [
            (o, raw)
            for o, raw in sorted(self._stored.records.items())
            if head.checkpoint_from <= o <= head.newest
        ]
        return fold(head, records, self._broker.settings.repeat_ms)

    async def commit(self, commit: Commit) -> list[int]:
        await asyncio.sleep(0)
        self._broker.check_reachable()
        delivery = self._broker.settings.delivery
        loss = self._broker.lose.pop(0) if self._broker.lose else None
        if loss == "before" or (loss == "between" and delivery == "exactly_once"):
            raise KafkaUnavailable("no answer to a commit")
        if delivery == "at_least_once":
            self._deliver(commit, is_last_word=loss == "between")
        if self._epoch != self._stored.producer_epoch:
            raise Fenced("a newer producer has started")
        stored = self._stored
        offsets = [stored.next_record + n for n in range(len(commit.records))]
        stored.records.update(zip(offsets, commit.records, strict=True))
        stored.next_record += len(offsets) + 1  # a control record ends the transaction
        stored.head = commit.head_at(offsets)
        self._broker.commits += 1
        if loss == "between":
            raise KafkaUnavailable("the sessions of a commit could not be sent")
        if delivery != "at_least_once":
            self._deliver(commit)
        await asyncio.sleep(0)
        if loss == "after":
            raise KafkaUnavailable("the answer to a commit was lost")
        return offsets

    def _deliver(self, commit: Commit, *, is_last_word: bool = False) -> None:
        self._broker.sessions += [(self._stream, value) for _, value in commit.sessions]
        if is_last_word:
            raise KafkaUnavailable("no answer to a commit whose sessions were sent")

    async def tick(self) -> None:
        self._broker.append(self._stream, None, encode_marker(None))

    async def trim(self, below: int) -> None:
        self._stored.records = {o: raw for o, raw in self._stored.records.items() if o >= below}

    async def close(self) -> None:
        await asyncio.sleep(0)


class InMemoryStreamLog:
    """A `StreamLog` on a shared broker."""

    def __init__(self, broker: InMemoryLog) -> None:
        self.broker = broker

    def reader(self, stream: int) -> InMemoryReader:
        return InMemoryReader(self.broker, stream)

    def sink(self, stream: int) -> InMemorySink:
        return InMemorySink(self.broker, stream)

    async def ends(self, count: int) -> Mapping[int, int]:
        self.broker.check_reachable()
        return {n: (s := self.broker.stored(n)).first + len(s.log) for n in range(count)}

    async def close(self) -> None:
        await asyncio.sleep(0)
