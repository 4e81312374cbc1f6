"""Records waiting for Kafka: one queue of batches per stream, and the requests that wait for each batch.

All requests share a stream's open batch. A request waits for the few batches that hold its records instead
of a future per record, which is what makes aiokafka's `send` cost 7–14 µs; here a record costs 1 µs. A stream
has at most one batch in flight, so its order is kept, and batches grow by themselves when Kafka is slow.
Used by `sink.py`, which owns the client.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from services.producer.core.ingest import Portion

SLOW_ROUND_S = 0.25
"""Far above a usual acknowledgement (2–10 ms)."""


class Builder(Protocol):
    """The part of aiokafka's BatchBuilder that we use."""

    def append(self, *, timestamp: int | None, key: bytes | None, value: bytes | None) -> Any:
        """Adds a record; returns None, and adds nothing, when the batch is full."""
        ...

    def record_count(self) -> int:
        """The number of records in the batch."""
        ...


class Delivery:
    """What one request waits for; `done` once the outcome of all its records is known.

    A share is the part of a batch that belongs to one request. `unstored` are the indexes of records that
    were not acknowledged. `offsets` has, for each acknowledged share, its indexes and the offset of the first
    record; the other records follow it without a gap.
    """

    __slots__ = ("_left", "done", "offsets", "unstored")

    def __init__(self) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.unstored: list[int] = []
        self.offsets: list[tuple[list[int], int]] = []
        self._left = 0

    def expect(self) -> None:
        """Adds a share to wait for."""
        self._left += 1

    def stored(self, indexes: list[int], first_offset: int) -> None:
        """Records that a share was acknowledged."""
        self.offsets.append((indexes, first_offset))
        self._settle()

    def lost(self, indexes: list[int]) -> None:
        """Records that a share was not acknowledged."""
        self.unstored += indexes
        self._settle()

    def _settle(self) -> None:
        self._left -= 1
        # the waiting request may have been cancelled meanwhile
        if self._left == 0 and not self.done.done():
            self.done.set_result(None)


@dataclass(slots=True)
class Round:
    """Batches that were sent to one lane (a broker) together; `in_flight` of them are not answered yet."""

    lane: int
    sent_at: float
    in_flight: int = 0


@dataclass(slots=True, eq=False)
class Batch:
    """Records of one stream that are sent together; in a `round` once they are in flight."""

    stream: int
    builder: Builder
    shares: list[tuple[Delivery, list[int], int]] = field(default_factory=list)
    round: Round | None = None

    def stored(self, base_offset: int) -> None:
        """Completes its shares: Kafka acknowledged the batch, with its first record at `base_offset`."""
        for delivery, indexes, first in self.shares:
            delivery.stored(indexes, base_offset + first)

    def lost(self) -> None:
        """Completes its shares: Kafka did not acknowledge the batch. It may have stored it or not."""
        for delivery, indexes, _ in self.shares:
            delivery.lost(indexes)


class Backlog:
    """The batches of each stream: those that wait, and the one in flight.

    aiokafka has one request in flight to a broker, so a lane gets its next round only when the last one is
    complete: a batch handed over earlier would not be sent earlier, it would only stop growing. A round
    slower than SLOW_ROUND_S (one of its partitions may have no leader) no longer holds up the next one.
    """

    def __init__(self, new_builder: Callable[[], Builder], lane_of: Callable[[int], int]) -> None:
        self._new_builder = new_builder
        self._lane_of = lane_of
        self._queues: dict[int, deque[Batch]] = {}
        self._in_flight: dict[int, Batch] = {}
        self._ready: dict[int, set[int]] = {}
        self._rounds: dict[int, Round] = {}

    def __repr__(self) -> str:
        waiting = sum(len(queue) for queue in self._queues.values())
        return f"<Backlog: {waiting} batches waiting, {len(self._in_flight)} in flight>"

    def add(
        self,
        stream: int,
        records: Iterable[tuple[bytes | None, bytes]],
        indexes: list[int],
        delivery: Delivery,
        now_ms: int,
    ) -> None:
        """Appends records, one per index, to the stream; `delivery` gets the outcome of each share."""
        queue = self._queues.get(stream)
        if queue is None:
            queue = self._queues[stream] = deque()
        if not queue:
            queue.append(Batch(stream, self._new_builder()))
            if stream not in self._in_flight:  # else `complete` makes it ready: one batch at a time
                self._make_ready(stream)
        batch = queue[-1]
        append, first, start = batch.builder.append, batch.builder.record_count(), 0
        for at, (key, value) in enumerate(records):
            if append(timestamp=now_ms, key=key, value=value) is None:
                if at > start:
                    _share(batch, delivery, indexes[start:at], first)
                batch = Batch(stream, self._new_builder())
                queue.append(batch)
                append, first, start = batch.builder.append, 0, at
                # a new batch accepts its first record, however large it is
                append(timestamp=now_ms, key=key, value=value)
        _share(batch, delivery, indexes[start:] if start else indexes, first)

    def add_portion(self, stream: int, portion: Portion, delivery: Delivery, now_ms: int) -> None:
        """Appends a request's fragments for one stream."""
        self.add(stream, zip(portion.keys, portion.values, strict=True), portion.indexes, delivery, now_ms)

    def take_ready(self, now: float) -> list[Batch]:
        """Returns the batches to send now, at most one per stream, and marks them as in flight."""
        batches: list[Batch] = []
        # a lane with a round in flight waits, and its batches grow meanwhile
        for lane in [lane for lane in self._ready if lane not in self._rounds]:
            current = self._rounds[lane] = Round(lane, now)
            for stream in self._ready.pop(lane):
                batch = self._queues[stream].popleft()
                batch.round = current
                current.in_flight += 1
                self._in_flight[stream] = batch
                batches.append(batch)
        return batches

    def complete(self, batch: Batch) -> bool:
        """Ends the batch's flight, so that its stream may send again; False if `fail_all` already did."""
        if self._in_flight.get(batch.stream) is not batch:
            return False
        del self._in_flight[batch.stream]
        if self._queues[batch.stream]:
            self._make_ready(batch.stream)
        current = batch.round
        assert current is not None
        current.in_flight -= 1
        if not current.in_flight:
            self._release(current)
        return True

    def release_slow_rounds(self, now: float) -> None:
        """Stops waiting for rounds older than SLOW_ROUND_S."""
        for current in [r for r in self._rounds.values() if now - r.sent_at > SLOW_ROUND_S]:
            self._release(current)

    def oldest_sent_at(self) -> float | None:
        """When the oldest batch in flight was sent; None if there is none."""
        return min((b.round.sent_at for b in self._in_flight.values() if b.round), default=None)

    def sent_before(self, at: float) -> list[int]:
        """Streams whose batch in flight was sent before then."""
        return [n for n, batch in self._in_flight.items() if batch.round and batch.round.sent_at < at]

    def fail_all(self) -> None:
        """Reports every record, in flight or waiting, as not acknowledged."""
        batches = [*self._in_flight.values(), *(batch for queue in self._queues.values() for batch in queue)]
        # forget them first, so that late answers are ignored (see `complete`)
        for state in (self._in_flight, self._queues, self._ready, self._rounds):
            state.clear()
        for batch in batches:
            batch.lost()

    def _make_ready(self, stream: int) -> None:
        self._ready.setdefault(self._lane_of(stream), set()).add(stream)

    def _release(self, current: Round) -> None:
        # a slow round was released earlier, and the lane may have a newer one
        if self._rounds.get(current.lane) is current:
            del self._rounds[current.lane]


def _share(batch: Batch, delivery: Delivery, indexes: list[int], first: int) -> None:
    delivery.expect()
    batch.shares.append((delivery, indexes, first))
