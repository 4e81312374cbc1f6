"""Kafka in memory as the queue service sees it: logs and items that all workers of a test share.

Time is that of the event loop. `fail` makes the next append to a log fail: `before` it is stored, or `after`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from services.queue.core.items import ItemRecord
from services.queue.core.open_items import Place
from services.queue.core.replica import LogMoved, LogRecord
from services.queue.ports import CommandLog, Unstored
from shared.errors import Conflict, InvalidInput, KafkaUnavailable
from shared.model.names import DEAD


@dataclass(slots=True)
class _Growing:
    """Something that is appended to, with those who wait for more."""

    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def grow(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


@dataclass(slots=True)
class StoredLog(_Growing):
    records: list[LogRecord] = field(default_factory=list)
    start: int = 0


@dataclass(slots=True)
class StoredItems(_Growing):
    """`None` in a partition: an offset without a record."""

    partitions: list[list[ItemRecord | None]] = field(default_factory=list)


class InMemoryQueueStore:
    """See `QueueStore`. `topics`: items by the name of their topic."""

    def __init__(self) -> None:
        self.logs: dict[str, StoredLog] = {}
        self.topics: dict[str, StoredItems] = {}
        self.committed: dict[str, list[int]] = {}
        self.max_bytes: dict[str, int] = {}
        """By topic, the most bytes of an item that it takes."""
        self.fail: list[Literal["before", "after", ""]] = []
        self.is_away = False
        self.clock_lag_ms = 0
        """So much the broker's clock has gone back."""
        self.readers: dict[str, InMemoryCommandLog] = {}
        """The reader of each log that was opened last."""

    @property
    def now_ms(self) -> int:
        """The broker's clock."""
        return 1_000_000 + int(asyncio.get_running_loop().time() * 1000) - self.clock_lag_ms

    def check(self) -> None:
        """Raises KafkaUnavailable while Kafka is away."""
        if self.is_away:
            raise KafkaUnavailable("Kafka is away")

    def make_topic(self, name: str, partitions: int = 1) -> StoredItems:
        """A topic that is there already."""
        made = self.topics[name] = StoredItems(partitions=[[] for _ in range(partitions)])
        return made

    async def list(self) -> list[str]:
        self.check()
        return sorted(self.logs)

    async def create(self, name: str, *, over: str, partitions: int) -> None:
        self.check()
        for queue, count in ((name, partitions), (f"{name}{DEAD}", 1)):
            self.logs.setdefault(queue, StoredLog())
            if over and queue == name:
                continue
            if queue not in self.topics:
                self.make_topic(queue, count)
            elif len(self.topics[queue].partitions) != count:
                raise Conflict("the topic is there, with other partitions")

    async def delete(self, name: str, *, over: str, log: CommandLog) -> None:
        await log.check()
        self.drop(name, over=over)

    def drop(self, name: str, *, over: str = "") -> None:
        """What the broker does: whoever reads the topics finds out."""
        for dropped in (self.logs.pop(name, None), None if over else self.topics.pop(name, None)):
            if dropped is not None:
                dropped.grow()

    async def count_partitions(self, over: str) -> int:
        if over not in self.topics:
            raise InvalidInput(f"there is no topic {over}")
        return len(self.topics[over].partitions)

    def open_log(self, name: str) -> InMemoryCommandLog:
        opened = self.readers[name] = InMemoryCommandLog(self, name)
        return opened

    async def open_items(
        self, name: str, *, over: str, partitions: int, frontier: Sequence[int]
    ) -> InMemoryItemLog:
        self.check()
        items = InMemoryItemLog(self, name, over or name, partitions)
        await items.check(frontier)
        return items


class InMemoryCommandLog:
    """See `CommandLog`. While `may_read` is clear, it lags."""

    def __init__(self, store: InMemoryQueueStore, name: str) -> None:
        self._store, self._name, self._next = store, name, 0
        self._stored = store.logs.get(name, StoredLog())
        self.may_read = asyncio.Event()
        self.may_read.set()

    @property
    def _named(self) -> StoredLog:
        """The log that has the name by now, to which appends go."""
        self._store.check()
        if self._name not in self._store.logs:
            raise KafkaUnavailable("there is no such topic")
        return self._store.logs[self._name]

    @property
    def is_moved(self) -> bool:
        """Whether another log has the name by now, or none."""
        return self._store.logs.get(self._name) is not self._stored

    async def check(self) -> None:
        if self._named is not self._stored:
            raise LogMoved("it is another topic of the same name")

    async def bounds(self) -> tuple[int, int]:
        self._stored = self._named
        return self._stored.start, len(self._stored.records)

    def seek(self, offset: int) -> None:
        self._next = offset

    async def read(self, timeout_s: float) -> Sequence[LogRecord]:
        changed = self._stored.changed
        if self._next >= len(self._stored.records) and not self.is_moved:
            try:
                async with asyncio.timeout(timeout_s):
                    await changed.wait()
            except TimeoutError:
                return []
        await self.may_read.wait()
        await self.check()
        if self._next < self._stored.start:
            raise LogMoved("trimmed")
        found = self._stored.records[self._next :]
        self._next += len(found)
        return found

    async def interrupt(self) -> None:
        """Wakes the reader, so that it meets what is wrong now."""
        self._stored.grow()
        await asyncio.sleep(0.01)

    async def append(self, value: bytes) -> None:
        await asyncio.sleep(0)
        self._store.check()
        how = self._store.fail.pop(0) if self._store.fail else ""
        if how != "before":
            self.store_now(value)
        if how:
            raise KafkaUnavailable("not acknowledged")

    def store_now(self, value: bytes) -> int:
        """What the broker does with a record; its offset."""
        log = self._named
        log.records.append(LogRecord(len(log.records), self._store.now_ms, value))
        log.grow()
        return len(log.records) - 1

    async def trim(self, below: int) -> None:
        await self.check()
        self._stored.start = max(self._stored.start, below)

    def close(self) -> None:
        pass


class InMemoryItemLog:
    """See `ItemLog`. It reads ahead at once, and keeps no copies."""

    def __init__(self, store: InMemoryQueueStore, name: str, topic: str, partitions: int) -> None:
        self._store, self._name, self._topic = store, name, topic
        self._stored = self._named
        if len(self._stored.partitions) != partitions:
            raise KafkaUnavailable("there is no such partition")
        self.starts = [0] * len(self._stored.partitions)
        self.frontier: Sequence[int] = self.starts
        self.fault = ""

    @property
    def _named(self) -> StoredItems:
        """The topic that has the name by now, to which items go."""
        self._store.check()
        if self._topic not in self._store.topics:
            raise KafkaUnavailable("there is no such topic")
        return self._store.topics[self._topic]

    def _check(self) -> None:
        if self._named is not self._stored:
            raise KafkaUnavailable("it is another topic of the same name")

    @property
    def ends(self) -> list[int]:
        return [len(one) for one in self._stored.partitions]

    @property
    def backlog_ends(self) -> list[int]:
        return self.ends

    async def check(self, frontier: Sequence[int]) -> None:
        is_short = any(end < offset for end, offset in zip(self.ends, frontier, strict=True))
        self.fault = "the topic was shortened: seek the queue back" if is_short else ""

    async def first(self, place: Place, end: int) -> ItemRecord | None:
        self._check()
        number, offset = place
        behind = self._stored.partitions[number][offset:end]
        return next((item for item in behind if item is not None), None)

    def follow(self, frontier: Sequence[int]) -> None:
        self.frontier = list(frontier)

    async def run(self, changed: Callable[[], None]) -> None:
        while True:
            waiting = self._stored.changed
            changed()
            await waiting.wait()

    async def catch_up(self) -> None:
        self._store.check()

    async def get(self, places: Collection[Place]) -> Mapping[Place, ItemRecord]:
        self._check()
        found = {place: self._stored.partitions[place[0]][place[1]] for place in places}
        return {place: item for place, item in found.items() if item is not None}

    async def append(self, items: Sequence[ItemRecord]) -> Unstored:
        if self._store.is_away:
            return Unstored(unsure=range(len(items)))
        most = self._store.max_bytes.get(self._topic, math.inf)
        self.store_now([item for item in items if len(item.value) <= most])
        return Unstored(refused=[n for n, item in enumerate(items) if len(item.value) > most])

    def store_now(self, items: Sequence[ItemRecord]) -> None:
        """What the broker does with them."""
        topic = self._named
        for item in items:
            stored = ItemRecord(
                value=item.value, id=item.id, append_ms=self._store.now_ms, headers=item.headers
            )
            min(topic.partitions, key=len).append(stored)
        topic.grow()

    async def find(self, to: int | str) -> list[int]:
        if isinstance(to, str):
            return {"earliest": self.starts, "latest": self.ends}[to]
        return [
            next((n for n, item in enumerate(one) if item is not None and item.append_ms >= to), len(one))
            for one in self._stored.partitions
        ]

    async def settle(self, lowest: Sequence[int], before_ms: int | None) -> None:
        if self._named is not self._stored:
            raise LogMoved("it is another topic of the same name")
        self._store.committed[self._name] = list(lowest)

    def close(self) -> None:
        pass
