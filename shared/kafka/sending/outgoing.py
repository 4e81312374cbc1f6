"""What waits to be sent to one partition: a queue of batches, of which at most one is on its way.

All who write share the open batch, and each waits for the few batches that hold its records instead of a
future per record, which is what makes aiokafka's `send` cost 7–14 µs; here a record costs 1 µs. One batch at
a time keeps the order, and batches grow by themselves while Kafka is busy. Used by `sender.py`.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c

from shared.backoff import Backoff
from shared.kafka.delivery import Loss, Record, Waiter
from shared.kafka.offsets import Partition

Producer = tuple[int, int]
"""Id and epoch under which a broker counts what it got; without an id it counts nothing."""
_PRODUCER = struct.Struct(">qhi")
_PRODUCER_AT, _CRC_AT, _COVERED_FROM = 43, 17, 21
"""Where a batch has its producer's id, epoch and the sequence number; its checksum, and what that covers."""
_SEQUENCES = 2**31


@dataclass(slots=True, eq=False)
class Trip:
    """A request on its way to a broker, with batches of several partitions."""

    node: int
    sent_s: float | None = None
    """When it reached the connection."""


@dataclass(slots=True, eq=False)
class Batch:
    """Records of one partition that are sent together."""

    created_s: float
    builder: Any
    count: int = 0
    shares: list[tuple[Waiter, Sequence[Any], int]] = field(default_factory=list)
    data: bytearray = field(default_factory=bytearray)
    """Encoded, once it is sealed."""
    signed: tuple[Producer, int] | None = None
    """The producer and sequence number in `data`."""
    trip: Trip | None = None
    """What it travels in; None while it does not."""
    is_doubtful: bool = False
    """Whether an earlier trip may have stored it."""
    trouble: str = ""
    """Why the last trip failed."""

    @property
    def may_be_stored(self) -> bool:
        """Whether it may have been stored without our knowing."""
        return self.is_doubtful or (self.trip is not None and self.trip.sent_s is not None)

    def seal(self, producer: Producer, sequence: int) -> None:
        """Encodes it under these numbers; once it is encoded, only the numbers can change."""
        if self.signed == (producer, sequence):
            return
        if self.signed is None:
            self.builder.set_producer_state(*producer, sequence)
            self.data, self.builder = self.builder.build(), None
        else:
            _PRODUCER.pack_into(self.data, _PRODUCER_AT, *producer, sequence)
            struct.pack_into(">I", self.data, _CRC_AT, calc_crc32c(bytes(self.data[_COVERED_FROM:])))
        self.signed = producer, sequence

    def stored(self, base_offset: int) -> None:
        """Tells its waiters where the records are."""
        for waiter, indexes, first in self.shares:
            waiter.stored(indexes, base_offset + first if base_offset >= 0 else -1)

    def lost(self, loss: Loss) -> None:
        """Tells its waiters that the records were not acknowledged."""
        for waiter, indexes, _ in self.shares:
            waiter.lost(indexes, loss)


class Outgoing:
    """The batches of one partition. `current`: the one that is on its way, or that is to be tried again."""

    def __init__(self, place: Partition, new_builder: Callable[[], DefaultRecordBatchBuilder]) -> None:
        self.place = place
        self.current: Batch | None = None
        self.queue: deque[Batch] = deque()
        self.producer: Producer | None = None
        """None: it needs one other than `spent`."""
        self.spent: Producer | None = None
        self.backoff = Backoff(first_s=0.02, cap_s=0.5)
        self.is_sick = False
        """Whether its last trip failed."""
        self.missing_since_s: float | None = None
        """Since when Kafka says that there is no such topic."""
        self._sequence = 0
        self._new_builder = new_builder

    def __repr__(self) -> str:
        return f"<Outgoing to {self.place}: {len(self.queue)} waiting, {self.current}>"

    @property
    def trip(self) -> Trip | None:
        """The trip of the batch that is on its way."""
        return self.current.trip if self.current is not None else None

    @property
    def has_next(self) -> bool:
        """Whether a batch could be sent now."""
        return self.current.trip is None if self.current is not None else bool(self.queue)

    @property
    def requests(self) -> int:
        """How many shares the next batch has."""
        batch = self.current or (self.queue[0] if self.queue else None)
        return len(batch.shares) if batch is not None else 0

    def append(
        self, records: Iterable[Record], indexes: Sequence[Any], waiter: Waiter, now_ms: int, now_s: float
    ) -> int:
        """Appends records, one for each index; in how many shares."""
        queue = self.queue
        if not queue:
            queue.append(Batch(now_s, self._new_builder()))
        batch = queue[-1]
        append, count, start, shares = batch.builder.append, batch.count, 0, 1
        for at, (key, value, headers) in enumerate(records):
            if append(count, now_ms, key, value, headers) is None:
                if at > start:
                    batch.shares.append((waiter, indexes[start:at], batch.count))
                    shares += 1
                batch.count = count
                batch = Batch(now_s, self._new_builder())
                queue.append(batch)
                append, count, start = batch.builder.append, 0, at
                # a new batch accepts its first record, however large it is
                append(0, now_ms, key, value, headers)
            count += 1
        batch.shares.append((waiter, indexes[start:] if start else indexes, batch.count))
        batch.count = count
        return shares

    def take_off(self, trip: Trip) -> Batch:
        """The next batch, encoded, travels from here on. Needs a producer and `has_next`."""
        assert self.producer is not None
        batch = self.current or self.queue.popleft()
        batch.seal(self.producer, self._sequence)
        batch.trip = trip
        self.current = batch
        return batch

    def arrive(self, trip: Trip, trouble: str, *, is_doubtful: bool) -> Batch | None:
        """The batch of a trip that has ended; None if it has been decided about already.

        `is_doubtful`: whether the trip may have stored it all the same, provided that it was sent.
        """
        batch = self.current
        if batch is None or batch.trip is not trip:
            return None
        batch.trip, batch.trouble = None, trouble
        self.is_sick = True
        batch.is_doubtful |= is_doubtful and trip.sent_s is not None
        return batch

    def complete(self, batch: Batch, *, is_stored: bool) -> None:
        """The batch is decided. Its sequence numbers are used, free for the next batch, or in doubt.

        In doubt, the next batch needs another producer: with these numbers it might pass for a repetition.
        """
        is_doubtful = not is_stored and batch.may_be_stored
        if batch is self.current:
            self.current = None
        else:
            self.queue.remove(batch)
        batch.trip = None
        if is_stored:
            self.is_sick = False
            self._sequence = (self._sequence + batch.count) % _SEQUENCES
        elif is_doubtful:
            self.renounce()

    def renounce(self) -> None:
        """Needs another producer from here on."""
        if self.producer is not None:
            self.producer, self.spent = None, self.producer

    def adopt(self, producer: Producer) -> bool:
        """Goes on as this producer, if it needs one; whether it has one now."""
        if self.producer is None and producer != self.spent:
            self.producer, self._sequence = producer, 0
        return self.producer is not None
