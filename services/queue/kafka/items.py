"""The items of one queue on Kafka: read ahead from the frontier, kept while there is room, and appended.

What was read is a cache: an item that has left it is read again from the log. Memory is bounded by
`AHEAD_BYTES` of items that were never leased, and `CACHE_BYTES` in all.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

from services.queue.core.items import ItemRecord, headers_of, read_record
from services.queue.core.open_items import Place
from shared.kafka.cluster import Cluster
from shared.kafka.delivery import Delivery, Record
from shared.kafka.fetcher import Fetcher
from shared.kafka.groups import KafkaGroup
from shared.kafka.offsets import EARLIEST, LATEST, NONE, Partition, delete_records, list_offsets
from shared.kafka.ranges import read_range
from shared.kafka.sender import Sender

AHEAD_BYTES: Final = 8 * 1024 * 1024
CACHE_BYTES: Final = 24 * 1024 * 1024
TAKEN_AT_ONCE = 200
READ_S = 1.0
REACH = 1_000
"""A frontier that is this far ahead of what was read is sought; a nearer one is read up to."""
AGAIN_BYTES = 256 * 1024
"""What one request for items that have left the cache asks for."""
CATCH_UP_S = 5.0


class KafkaItemLog:
    """See `ItemLog`. `run` must run; `group` gets the lowest offsets that are not done."""

    def __init__(
        self, cluster: Cluster, fetcher: Fetcher, sender: Sender, *, topic: str, group: str, partitions: int
    ) -> None:
        self._cluster, self._fetcher, self._sender = cluster, fetcher, sender
        self._topic = topic
        self._group = KafkaGroup(cluster, group)
        self.starts = [0] * partitions
        self.ends = [0] * partitions
        self._from = [0] * partitions
        """Where the present reading of each partition began."""
        self._frontier = [0] * partitions
        self._readings = [fetcher.read(topic, number, 0) for number in range(partitions)]
        self._cache: dict[Place, ItemRecord] = {}
        self._cached_bytes = 0
        self._ahead: list[deque[tuple[int, int]]] = [deque() for _ in range(partitions)]
        """Offset and size of what was read and not leased yet, by partition."""
        self._ahead_bytes = 0
        self._progress = asyncio.Event()
        """Set when something was read, or the frontier moved; its reader clears it."""
        self._turn = 0

    def __repr__(self) -> str:
        return f"<KafkaItemLog {self._topic}: {len(self._cache)} items, read to {self.ends}>"

    @property
    def backlog_ends(self) -> Sequence[int]:
        """See `ItemLog`. Where nothing more is there to be taken, what was read is all."""
        readings = zip(self.ends, self._readings, strict=True)
        return [max(end, one.end) if one.size or one.next_offset < one.end else end for end, one in readings]

    @property
    def _partitions(self) -> list[Partition]:
        return [(self._topic, number) for number in range(len(self.ends))]

    async def start(self) -> None:
        """Finds where the partitions begin."""
        starts = await list_offsets(self._cluster, self._partitions, EARLIEST)
        self.starts = [starts[place] for place in self._partitions]

    def follow(self, frontier: Sequence[int]) -> None:
        """See `ItemLog`."""
        for number, (offset, before) in enumerate(zip(frontier, self._frontier, strict=True)):
            if offset == before:
                continue
            self._frontier[number] = offset
            if offset < self._from[number] or offset > self.ends[number] + REACH:
                self._seek(number, offset)
            ahead = self._ahead[number]
            while ahead and ahead[0][0] < offset:
                self._ahead_bytes -= ahead.popleft()[1]
            self._progress.set()

    async def run(self, changed: Callable[[], None]) -> None:
        """See `ItemLog`."""
        async with asyncio.TaskGroup() as tasks:
            for number in range(len(self.ends)):
                tasks.create_task(self._read(number, changed))

    async def catch_up(self) -> None:
        """See `ItemLog`."""
        found = await list_offsets(
            self._cluster, self._partitions, LATEST, is_committed=self._fetcher.is_committed
        )
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CATCH_UP_S):
                while not self._has_read([found[place] for place in self._partitions]):
                    self._progress.clear()
                    await self._progress.wait()

    async def get(self, places: Collection[Place]) -> Mapping[Place, ItemRecord]:
        """See `ItemLog`."""
        found = {place: self._cache[place] for place in places if place in self._cache}
        for number, first, last in _ranges(place for place in places if place not in found):
            async for record in read_range(
                self._cluster,
                (self._topic, number),
                first,
                last,
                is_committed=self._fetcher.is_committed,
                fetch_bytes=AGAIN_BYTES,
            ):
                found[number, record.offset] = read_record(record.value, record.headers, record.timestamp)
        return found

    async def append(self, items: Sequence[ItemRecord]) -> list[int]:
        """See `ItemLog`. All go to one partition, in order; the next call's go to the next one."""
        self._turn = (self._turn + 1) % len(self.ends)
        records: list[Record] = [(None, item.value, headers_of(item)) for item in items]
        delivery = Delivery()
        place = self._partitions[self._turn]
        delivery.expect(self._sender.add(place, records, range(len(records)), delivery))
        await delivery.done
        return sorted(delivery.unstored)

    async def find(self, to: int | str) -> list[int]:
        """See `ItemLog`."""
        which = {"earliest": EARLIEST, "latest": LATEST}.get(to, 0) if isinstance(to, str) else to
        committed = self._fetcher.is_committed
        ends = await list_offsets(self._cluster, self._partitions, LATEST, is_committed=committed)
        found = await list_offsets(self._cluster, self._partitions, which, is_committed=committed)
        return [ends[one] if found[one] == NONE else found[one] for one in self._partitions]

    async def settle(self, lowest: Sequence[int], keep_ms: int | None) -> None:
        """See `ItemLog`."""
        for place, offset in zip(self._partitions, lowest, strict=True):
            await self._group.commit(place, offset, "")
        if keep_ms is None:
            return
        # by the broker's time of the newest done item, not by a clock here
        ages = await self.get([(number, offset - 1) for number, offset in enumerate(lowest) if offset > 0])
        if ages:
            young = await self.find(max(0, max(item.append_ms for item in ages.values()) - keep_ms))
            below = {
                place: min(offset, first)
                for place, offset, first in zip(self._partitions, lowest, young, strict=True)
            }
            await delete_records(self._cluster, below)

    def close(self) -> None:
        """Ends the readings."""
        for reading in self._readings:
            self._fetcher.forget(reading)

    def _seek(self, number: int, offset: int) -> None:
        self._readings[number].seek(offset)
        self.ends[number] = self._from[number] = offset
        self._ahead_bytes -= sum(size for _, size in self._ahead[number])
        self._ahead[number].clear()

    async def _read(self, number: int, changed: Callable[[], None]) -> None:
        reading = self._readings[number]
        while True:
            while self._ahead_bytes > AHEAD_BYTES:
                self._progress.clear()
                await self._progress.wait()
            records = await reading.take(READ_S, TAKEN_AT_ONCE)
            # `ends` only from here on: a seek may have come while this waited
            if records and records[0].offset > self.ends[number] + REACH:
                await self.start()  # retention has taken the records between
            for record in records:
                if record.offset >= self._frontier[number]:
                    item = read_record(record.value, record.headers, record.timestamp)
                    self._keep((number, record.offset), item)
            if reading.position > self.ends[number]:
                self.ends[number] = reading.position
                self._progress.set()
                changed()

    def _keep(self, place: Place, item: ItemRecord) -> None:
        if (old := self._cache.pop(place, None)) is not None:
            self._cached_bytes -= old.size
        self._cache[place] = item
        self._cached_bytes += item.size
        self._ahead[place[0]].append((place[1], item.size))
        self._ahead_bytes += item.size
        while self._cached_bytes > CACHE_BYTES:
            self._cached_bytes -= self._cache.pop(next(iter(self._cache))).size

    def _has_read(self, ends: Sequence[int]) -> bool:
        if self._ahead_bytes > AHEAD_BYTES:
            return True
        return all(have >= end for have, end in zip(self.ends, ends, strict=True))


def _ranges(places: Iterator[Place]) -> Iterator[tuple[int, int, int]]:
    """Partition, first and last offset of what lies next to each other."""
    ordered = sorted(places)
    first = 0
    for at, (one, two) in enumerate(pairwise([*ordered, (-1, -1)])):
        if two != (one[0], one[1] + 1):
            yield one[0], ordered[first][1], one[1]
            first = at + 1
