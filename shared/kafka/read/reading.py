"""One partition as a fetcher reads it: what to fetch next, what was fetched, and who waits for it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

from shared.backoff import Backoff
from shared.errors import KafkaUnavailable
from shared.kafka.read.batches import RecordBuffer, scan
from shared.kafka.wire.fetch import NO_EPOCH, FetchedPartition, Place, Wish
from shared.kafka.wire.metadata import Leader

FETCH_BYTES = 1024 * 1024
"""Of one partition in one fetch: as much as is decoded in about 5 ms."""
MOST_FETCH_BYTES = 64 * 1024 * 1024
"""A batch that is larger than a fetch is asked for again with twice as much, up to this."""
CALM_S = 5.0
"""After so long without a doubt about its leader, a reading may look for it at once."""


class Reading:
    """The records of one partition from an offset on; a `Fetcher` makes it and fills it."""

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        changed: Callable[[Reading], None],
        *,
        is_committed: bool = False,
    ) -> None:
        self.topic, self.partition = topic, partition
        self.is_paused = False
        """Whether its reader wants nothing at present."""
        self.is_left_out = False
        """Whether it was left out of a fetch, because of what it and the others hold."""
        self._end = -1
        self.is_urgent = True
        """Whether it should be fetched now, and not only with the next long poll."""
        self._leader: Leader | None = None
        self._ask: tuple[Place, Wish] | None = None
        self._changed = changed
        self._buffer = RecordBuffer(is_committed=is_committed)
        self._next = -1
        self._last_epoch = NO_EPOCH
        self._begins = -1
        self._max_bytes = FETCH_BYTES
        self._failure: KafkaUnavailable | None = None
        self._filled = asyncio.Event()
        self._backoff = Backoff(first_s=0.05, cap_s=1.0)
        self._doubted_s = -math.inf
        self.look_at_s = 0.0
        """When to look for its leader, on the loop's clock."""
        self.seek(offset)

    def __repr__(self) -> str:
        return (
            f"<Reading of {self.topic}/{self.partition} at {self._buffer.position}, fetched to {self._next}>"
        )

    @property
    def end(self) -> int:
        """The next offset to be written, as far as known."""
        return max(self._end, self._next)

    @property
    def position(self) -> int:
        """The offset after what was taken."""
        return self._buffer.position

    @property
    def next_offset(self) -> int:
        """The offset to fetch next."""
        return self._next

    @property
    def size(self) -> int:
        """Bytes that were fetched and not taken."""
        return self._buffer.size

    @property
    def has_room(self) -> bool:
        """Whether it should be fetched: at most half of a fetch waits to be taken."""
        return not self.is_paused and self.size <= FETCH_BYTES // 2 and self._failure is None

    @property
    def leader(self) -> Leader | None:
        """The broker that it is fetched from; None while that is unknown."""
        return self._leader

    @leader.setter
    def leader(self, leader: Leader | None) -> None:
        self._leader, self._ask = leader, None

    @property
    def ask(self) -> tuple[Place, Wish]:
        """How a fetch names it, and what to fetch next. Only with a leader.

        Made anew only after a change: each request looks at all partitions, most of which are silent.
        """
        if self._ask is None:
            assert self._leader is not None
            place = Place(self._leader.topic_id, self.partition)
            self._ask = place, Wish(self._next, self._leader.epoch, self._last_epoch, self._max_bytes)
        return self._ask

    def seek(self, offset: int) -> None:
        """Reads on from the offset; what was fetched is discarded."""
        self._buffer.start(offset)
        self._next, self._last_epoch, self._begins = offset, NO_EPOCH, offset
        self._failure = self._ask = None
        self.is_urgent = True
        self._filled.clear()
        self._changed(self)

    def pause(self) -> None:
        """Fetches nothing until `resume`, and holds nothing: others may have the room."""
        self.is_paused = True
        self.seek(self.position)

    def resume(self) -> None:
        """Reads on where it was paused, or has been sought since."""
        self.is_paused = False
        self._changed(self)

    def note_end(self, end: int) -> None:
        """Somebody has asked where the partition ends: while it is not fetched, no answer says so."""
        self._end = end

    def repeat(self) -> None:
        """Goes back to the last record that was taken since the seek, so that its reader can compare it."""
        self.seek(max(self._begins, self._buffer.position - 1))

    def doubt(self) -> None:
        """Its leader is unknown from here on: looked for at once, and ever later while that is in vain."""
        now_s = asyncio.get_running_loop().time()
        self.leader = None
        self.look_at_s = now_s
        if now_s - self._doubted_s < CALM_S:
            self.look_at_s += self._backoff.next_s()
        else:
            self._backoff.reset()
        self._doubted_s = self.look_at_s

    async def take(self, timeout_s: float, most: int) -> list[Any]:
        """The next records, at most `most`; none after `timeout_s`. May be cancelled, and loses nothing.

        Raises KafkaUnavailable: when the fetch was refused, or records are damaged.
        """
        if not self._filled.is_set() and timeout_s > 0:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._filled.wait()
            except TimeoutError:
                return []
        if self._failure is not None:
            raise self._failure
        had_room = self.has_room
        records = self._buffer.take(most)
        if not self.size:
            self._filled.clear()
        if self.has_room and (self.is_left_out or not had_room):
            self.is_left_out, self.is_urgent = False, True
            self._changed(self)
        return records

    def fail(self, reason: str) -> None:
        """The next `take` raises it; the partition is not fetched again until a seek."""
        self._failure = KafkaUnavailable(reason, cause=f"{self!r}")
        self._filled.set()

    def accept(self, fetched: FetchedPartition, asked_bytes: int) -> None:
        """Adds the answer to the present wish, which asked for so many bytes at most."""
        self._end = fetched.end
        if not fetched.records or self.is_paused:
            return
        self._ask = None
        try:
            found = scan(fetched.records)
        except KafkaUnavailable as error:
            self.fail(error.detail)
            return
        if not found.size:
            self._max_bytes = max(self._max_bytes, min(2 * asked_bytes, MOST_FETCH_BYTES))
            return
        self._buffer.add(fetched.records[: found.size], fetched.aborted)
        self._next, self._last_epoch = max(self._next, found.next_offset), found.epoch
        self._filled.set()
