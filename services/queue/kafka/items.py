"""The items of one queue on Kafka: read ahead from the frontier, kept while there is room, and appended.

What was read is a cache (cache.py): an item that has left it is read again from the log.

A topic that was made anew, or has lost its end, is not the one that the queue's log speaks of: new items
would lie below the frontier, and never be handed out. So a partition that ends before the frontier is a
fault, and so is another topic of the same name; until an operator seeks the queue back, nothing is leased or
added.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from services.queue.core.items import ItemRecord, read_record
from services.queue.core.open_items import Place
from services.queue.kafka.appending import ItemAppender
from services.queue.kafka.cache import ItemCache, ItemCaches
from services.queue.kafka.log import check_topic
from services.queue.ports import Unstored
from shared.errors import KafkaUnavailable
from shared.kafka.admin.committed import KafkaGroup
from shared.kafka.connect.cluster import Cluster
from shared.kafka.read.fetcher import Fetcher
from shared.kafka.read.offsets import EARLIEST, LATEST, NONE, delete_records, list_offsets
from shared.kafka.read.ranges import read_range
from shared.kafka.record import Partition
from shared.kafka.send.sender import Sender
from shared.together import together

TAKEN_AT_ONCE = 200
READ_S = 1.0
REACH = 1_000
"""A frontier that is this far ahead of what was read is sought; a nearer one is read up to."""
AGAIN_BYTES = 256 * 1024
"""What one request for items that have left the cache asks for."""
CATCH_UP_S = 5.0
logger = logging.getLogger(__name__)
CHECK_S = 1.0
"""Between looks at whether the topic may be another one; it costs no request while nothing is suspect."""
READS_AT_ONCE: Final = 2
"""Of one queue, of items that have left the cache: each may bring some megabytes."""
ALL_READS_AT_ONCE: Final = 8
"""Of all queues."""


@dataclass(frozen=True, slots=True)
class Shared:
    """What the queues of a worker share: the room for items, and turns to read what has left it."""

    caches: ItemCaches = field(default_factory=ItemCaches)
    reads: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(ALL_READS_AT_ONCE))


class KafkaItemLog:
    """See `ItemLog`. `run` must run; `group` gets the lowest offsets that are not done."""

    def __init__(
        self,
        cluster: Cluster,
        fetcher: Fetcher,
        sender: Sender,
        *,
        topic: str,
        group: str,
        partitions: int,
        shared: Shared | None = None,
    ) -> None:
        self._cluster, self._fetcher = cluster, fetcher
        self._appender = ItemAppender(sender, topic, partitions)
        self._topic = topic
        self._group = KafkaGroup(cluster, group)
        self.starts = [0] * partitions
        self.ends = [0] * partitions
        self._from = [0] * partitions
        """Where the present reading of each partition began."""
        self._frontier = [0] * partitions
        self._readings = [fetcher.read(topic, number, 0) for number in range(partitions)]
        self._shared = shared or Shared()
        self._cache = ItemCache(self._shared.caches)
        self._reads = asyncio.Semaphore(READS_AT_ONCE)
        self._topic_id: bytes | None = None
        self.fault = ""
        self._ahead: list[deque[tuple[int, int]]] = [deque() for _ in range(partitions)]
        """Offset and size of what was read and not leased yet, by partition."""
        self._ahead_bytes = 0
        self._progress = asyncio.Event()
        """Set when something was read, or the frontier moved; its reader clears it."""
        self._has_gone_back = False
        """Whether the frontier has gone back since there is a fault: only an operator's seek does that."""

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

    async def check(self, frontier: Sequence[int]) -> None:
        """See `ItemLog`. To be called before anything is read."""
        frontier = list(frontier)
        # after the frontier: it is below an end that somebody has read
        ends = await list_offsets(self._cluster, self._partitions, LATEST)
        short = [
            f"partition {number} ends at {ends[place]}, and {offset} offsets were leased or skipped"
            for number, (place, offset) in enumerate(zip(self._partitions, frontier, strict=True))
            if ends[place] < offset
        ]
        topic_id, is_back = self._present_id(), self._has_gone_back
        is_other = self._topic_id not in (None, topic_id) and not is_back
        if is_other and not short:
            short = ["it is another topic of the same name"]
        self._has_gone_back = False
        if short:
            if not self.fault:
                logger.error("items lost", extra={"topic": self._topic, "why": short[0]})
            self.fault = (
                f"the topic {self._topic} was made anew or shortened ({short[0]}): seek the queue back"
            )
            self._cache.clear()
            return
        is_new = bool(self.fault) or self._topic_id != topic_id
        self.fault, self._topic_id = "", topic_id
        if is_new:
            self._cache.clear()
            await self._find_starts()
        for number, offset in enumerate(frontier):
            if is_new or self._is_thrown_back(number):
                self._frontier[number] = offset
                self._seek(number, offset)

    def _present_id(self) -> bytes | None:
        """The id of the topic as the metadata have it now; the one of before while that is unknown."""
        return self._cluster.topic_id(self._topic) or self._topic_id

    def _is_suspect(self) -> bool:
        """Whether the topic may be another one, or shorter than it was."""
        return (
            bool(self.fault)
            or self._present_id() != self._topic_id
            or any(
                one.end < offset or self._is_thrown_back(number)
                for number, (one, offset) in enumerate(zip(self._readings, self._frontier, strict=True))
            )
        )

    def _is_thrown_back(self, number: int) -> bool:
        """Whether the partition is read where it has been read before, although nobody sought it."""
        # by one record it may go back, to compare it
        return self._readings[number].position < self.ends[number] - 1

    async def _guard(self, changed: Callable[[], None]) -> None:
        while True:
            await asyncio.sleep(CHECK_S)
            with contextlib.suppress(KafkaUnavailable):  # it is asked again
                await self._note_ends()
                if self._is_suspect():
                    await self.check(list(self._frontier))
                    changed()

    async def _note_ends(self) -> None:
        """Finds out how much waits behind what was read, where no fetch says so."""
        if any(one.is_paused or one.is_left_out for one in self._readings):
            ends = await list_offsets(
                self._cluster, self._partitions, LATEST, is_committed=self._fetcher.is_committed
            )
            for one, place in zip(self._readings, self._partitions, strict=True):
                one.note_end(ends[place])

    async def _find_starts(self) -> None:
        starts = await list_offsets(self._cluster, self._partitions, EARLIEST)
        self.starts = [starts[place] for place in self._partitions]

    def follow(self, frontier: Sequence[int]) -> None:
        """See `ItemLog`."""
        for number, (offset, before) in enumerate(zip(frontier, self._frontier, strict=True)):
            if offset == before:
                continue
            if self.fault and offset < before:
                self._has_gone_back = True
            self._frontier[number] = offset
            if offset < self._from[number] or offset > self.ends[number] + REACH:
                self._seek(number, offset)
            ahead = self._ahead[number]
            while ahead and ahead[0][0] < offset:
                self._ahead_bytes -= ahead.popleft()[1]
            self._progress.set()

    async def run(self, changed: Callable[[], None]) -> None:
        """See `ItemLog`."""
        await together(
            [self._guard(changed), *(self._read(number, changed) for number in range(len(self.ends)))]
        )

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
        found = {place: item for place in places if (item := self._cache.get(place)) is not None}
        left = [place for place in places if place not in found]
        if left:
            async with self._reads, self._shared.reads:
                for number, first, last in _ranges(left):
                    async for offset, item in self._again(number, first, last):
                        found[number, offset] = item
        return found

    async def first(self, place: Place, end: int) -> ItemRecord | None:
        """See `ItemLog`."""
        number, offset = place
        reading = contextlib.aclosing(self._again(number, offset, end - 1))
        async with self._reads, self._shared.reads, reading as again:
            async for _, item in again:
                return item
        return None

    async def _again(self, number: int, first: int, last: int) -> AsyncGenerator[tuple[int, ItemRecord]]:
        """Offset and item of what lies there, read from the log."""
        async for record in read_range(
            self._cluster,
            (self._topic, number),
            first,
            last,
            is_committed=self._fetcher.is_committed,
            fetch_bytes=AGAIN_BYTES,
        ):
            yield record.offset, read_record(record.value, record.headers, record.timestamp)

    async def append(self, items: Sequence[ItemRecord]) -> Unstored:
        """See `ItemLog`."""
        return await self._appender.append(items)

    async def find(self, to: int | str) -> list[int]:
        """See `ItemLog`."""
        which = {"earliest": EARLIEST, "latest": LATEST}.get(to, 0) if isinstance(to, str) else to
        committed = self._fetcher.is_committed
        ends = await list_offsets(self._cluster, self._partitions, LATEST, is_committed=committed)
        found = await list_offsets(self._cluster, self._partitions, which, is_committed=committed)
        return [ends[one] if found[one] == NONE else found[one] for one in self._partitions]

    async def settle(self, lowest: Sequence[int], before_ms: int | None) -> None:
        """See `ItemLog`."""
        await check_topic(self._cluster, self._topic, self._topic_id)
        for place, offset in zip(self._partitions, lowest, strict=True):
            await self._group.commit(place, offset, "")
        if before_ms is None:
            return
        young = await self.find(max(0, before_ms))
        below = {
            place: min(offset, first)
            for place, offset, first in zip(self._partitions, lowest, young, strict=True)
        }
        await delete_records(self._cluster, below)

    def close(self) -> None:
        """Ends the readings."""
        for reading in self._readings:
            self._fetcher.forget(reading)
        self._cache.clear()

    def _seek(self, number: int, offset: int) -> None:
        self._readings[number].seek(offset)
        self.ends[number] = self._from[number] = offset
        self._ahead_bytes -= sum(size for _, size in self._ahead[number])
        self._ahead[number].clear()
        self._progress.set()

    async def _read(self, number: int, changed: Callable[[], None]) -> None:
        reading = self._readings[number]
        reading.seek(self.ends[number])  # one that has failed is read again only after a seek
        reading.resume()
        while True:
            if self._is_far_ahead:
                # what waits to be taken holds room that all queues share
                reading.pause()
                while self._ahead_bytes > self._shared.caches.ahead_bytes // 2:
                    self._progress.clear()
                    await self._progress.wait()
                reading.resume()
            records = await reading.take(READ_S, TAKEN_AT_ONCE)
            # `ends` only from here on: a seek may have come while this waited
            if records and records[0].offset > self.ends[number] + REACH:
                await self._find_starts()  # retention has taken the records between
            for record in records:
                if record.offset >= self._frontier[number]:
                    item = read_record(record.value, record.headers, record.timestamp)
                    self._keep((number, record.offset), item)
            if reading.position > self.ends[number]:
                self.ends[number] = reading.position
                self._progress.set()
                changed()

    def _keep(self, place: Place, item: ItemRecord) -> None:
        self._cache.keep(place, item)
        self._ahead[place[0]].append((place[1], item.size))
        self._ahead_bytes += item.size

    @property
    def _is_far_ahead(self) -> bool:
        return self._ahead_bytes > self._shared.caches.ahead_bytes

    def _has_read(self, ends: Sequence[int]) -> bool:
        if self._is_far_ahead or any(one.is_paused for one in self._readings):
            return True
        return all(have >= end for have, end in zip(self.ends, ends, strict=True))


def _ranges(places: Iterable[Place]) -> Iterator[tuple[int, int, int]]:
    """Partition, first and last offset of what lies next to each other."""
    ordered = sorted(places)
    first = 0
    for at, (one, two) in enumerate(pairwise([*ordered, (-1, -1)])):
        if two != (one[0], one[1] + 1):
            yield one[0], ordered[first][1], one[1]
            first = at + 1
