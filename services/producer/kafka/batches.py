"""Records that wait for Kafka: batches per stream, and who waits for each of them.

One open batch per stream is shared by all requests; a request waits for the few batches that hold its
records, not for a future per record (which is what makes aiokafka's `send` cost 7–14 µs; here a record
costs 1 µs). A stream has at most one batch on its way, so its order stays and batches grow by
themselves when Kafka is slow. Used by `sink.py`, which owns the client.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from services.producer.core.ingest import Portion

PATIENCE_S = 0.25
"""Far above a usual acknowledgement (2–10 ms)."""


class Builder(Protocol):
    """The part of aiokafka's BatchBuilder that is needed here."""

    def append(self, *, timestamp: int | None, key: bytes | None, value: bytes | None) -> Any:
        """None when the batch is full."""
        ...

    def record_count(self) -> int:
        """Records in the batch."""
        ...


class Delivery:
    """What one request waits for: done when the fate of each of its records is known.

    `unstored`: indexes that were not acknowledged; `offsets`: for each acknowledged share of a batch
    its indexes and the offset of the first (their records lie one behind the other).
    """

    __slots__ = ("_left", "done", "offsets", "unstored")

    def __init__(self) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.unstored: list[int] = []
        self.offsets: list[tuple[list[int], int]] = []
        self._left = 0

    def expect(self) -> None:
        """One more share of a batch to wait for."""
        self._left += 1

    def stored(self, indexes: list[int], first_offset: int) -> None:
        """A share was acknowledged."""
        self.offsets.append((indexes, first_offset))
        self._settle()

    def lost(self, indexes: list[int]) -> None:
        """A share was not acknowledged."""
        self.unstored += indexes
        self._settle()

    def _settle(self) -> None:
        self._left -= 1
        # whoever waited may have been cancelled meanwhile
        if self._left == 0 and not self.done.done():
            self.done.set_result(None)


@dataclass(slots=True)
class Round:
    """Batches that were sent to one lane (a broker) together; `left` of them are on their way."""

    lane: int
    sent_at: float
    left: int = 0


@dataclass(slots=True, eq=False)
class Batch:
    """Records of one stream that travel together, in a `round` once they are on their way."""

    stream: int
    builder: Builder
    shares: list[tuple[Delivery, list[int], int]] = field(default_factory=list)
    round: Round | None = None

    def stored(self, base_offset: int) -> None:
        """Kafka acknowledged the batch, its first record at `base_offset`."""
        for delivery, indexes, first in self.shares:
            delivery.stored(indexes, base_offset + first)

    def lost(self) -> None:
        """Kafka did not acknowledge the batch; it may hold it or not."""
        for delivery, indexes, _ in self.shares:
            delivery.lost(indexes)


class Backlog:
    """Batches per stream that are not on their way yet, and the one that is.

    aiokafka has one request at a time under way to a broker, so a lane gets its next round when the last
    one has landed: what is given away earlier would only stop growing. A round that takes longer than
    PATIENCE_S (one partition of it may be without a leader) is not waited for.
    """

    def __init__(self, new_builder: Callable[[], Builder], lane_of: Callable[[int], int]) -> None:
        self._new_builder = new_builder
        self._lane_of = lane_of
        self._queues: dict[int, deque[Batch]] = {}
        self._flying: dict[int, Batch] = {}
        self._ready: dict[int, set[int]] = {}
        self._rounds: dict[int, Round] = {}

    def __repr__(self) -> str:
        waiting = sum(len(queue) for queue in self._queues.values())
        return f"<Backlog: {waiting} batches waiting, {len(self._flying)} on their way>"

    def add(
        self,
        stream: int,
        records: Iterable[tuple[bytes | None, bytes]],
        indexes: list[int],
        delivery: Delivery,
        now_ms: int,
    ) -> None:
        """Appends records, one per index, to the stream; `delivery` hears of each share's fate."""
        queue = self._queues.get(stream)
        if queue is None:
            queue = self._queues[stream] = deque()
        if not queue:
            queue.append(Batch(stream, self._new_builder()))
            if stream not in self._flying:
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
                append(timestamp=now_ms, key=key, value=value)
        _share(batch, delivery, indexes[start:] if start else indexes, first)

    def add_portion(self, stream: int, portion: Portion, delivery: Delivery, now_ms: int) -> None:
        """Appends a request's fragments for one stream."""
        self.add(stream, zip(portion.keys, portion.values, strict=True), portion.indexes, delivery, now_ms)

    def take(self, now: float) -> list[Batch]:
        """The batches to send now, at most one of each stream; from now on they are on their way."""
        batches: list[Batch] = []
        for lane in [lane for lane in self._ready if lane not in self._rounds]:
            current = self._rounds[lane] = Round(lane, now)
            for stream in self._ready.pop(lane):
                batch = self._queues[stream].popleft()
                batch.round = current
                current.left += 1
                self._flying[stream] = batch
                batches.append(batch)
        return batches

    def landed(self, batch: Batch) -> bool:
        """The batch is no longer on its way; False when it had been given up already."""
        if self._flying.get(batch.stream) is not batch:
            return False
        del self._flying[batch.stream]
        if self._queues[batch.stream]:
            self._make_ready(batch.stream)
        current = batch.round
        assert current is not None
        current.left -= 1
        if not current.left:
            self._release(current)
        return True

    def lose_patience(self, now: float) -> None:
        """Rounds older than PATIENCE_S no longer hold up the next one."""
        for current in [r for r in self._rounds.values() if now - r.sent_at > PATIENCE_S]:
            self._release(current)

    def oldest(self) -> float | None:
        """When the batch that has been on its way for longest was sent."""
        return min((b.round.sent_at for b in self._flying.values() if b.round), default=None)

    def sent_before(self, at: float) -> list[int]:
        """Streams whose batch is on its way since before then."""
        return [n for n, batch in self._flying.items() if batch.round and batch.round.sent_at < at]

    def give_up(self) -> None:
        """Every record, on its way or waiting, counts as lost."""
        batches = [*self._flying.values(), *(batch for queue in self._queues.values() for batch in queue)]
        for state in (self._flying, self._queues, self._ready, self._rounds):
            state.clear()
        for batch in batches:
            batch.lost()

    def _make_ready(self, stream: int) -> None:
        self._ready.setdefault(self._lane_of(stream), set()).add(stream)

    def _release(self, current: Round) -> None:
        if self._rounds.get(current.lane) is current:
            del self._rounds[current.lane]


def _share(batch: Batch, delivery: Delivery, indexes: list[int], first: int) -> None:
    delivery.expect()
    batch.shares.append((delivery, indexes, first))
