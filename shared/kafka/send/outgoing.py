"""What waits to be sent to one partition: a queue of batches, of which at most one is on its way.

All who write share the open batch, and each waits for the few batches that hold its records instead of a
future per record, which is what makes aiokafka's `send` cost 7–14 µs; here a record costs 1 µs. One batch at
a time keeps the order, and batches grow by themselves while Kafka is busy. Used by `sender.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from shared.backoff import Backoff
from shared.kafka.record import Partition, Record
from shared.kafka.send.outcome import Loss, Waiter
from shared.kafka.wire.records import (
    BATCH_OVERHEAD,
    RECORD_OVERHEAD,
    Encoded,
    Producer,
    Timed,
    encode_batch,
    sign_again,
    size_of,
)

_SEQUENCES = 2**31


class Trip:
    """A request on its way to a broker, with batches of several partitions."""

    __slots__ = ("node", "sent_s")

    def __init__(self, node: int) -> None:
        self.node = node
        self.sent_s: float | None = None
        """When it reached the connection."""

    def __repr__(self) -> str:
        return f"<Trip to {self.node}, sent at {self.sent_s}>"


class Batch:
    """Records of one partition that are sent together; `size`: their bytes, at most."""

    # set on the class, because most batches change none of them
    is_doubtful = False
    """Whether an earlier trip may have stored it."""
    trouble = ""
    """Why the last trip failed."""
    trip: Trip | None = None
    """What it travels in; None while it does not."""
    data: Encoded = (b"", b"")
    """Encoded, once it is sealed."""
    signed: tuple[Producer, int] | None = None
    """The producer and sequence number in `data`."""

    def __init__(self, created_s: float) -> None:
        self.created_s = created_s
        self.size = BATCH_OVERHEAD
        self.count = 0
        self.shares: list[tuple[Waiter, Sequence[Any], int]] = []
        self.records: list[Timed] = []
        """Until it is sealed."""

    def __repr__(self) -> str:
        return f"<Batch of {self.count} records, {self.size} bytes>"

    @property
    def may_be_stored(self) -> bool:
        """Whether it may have been stored without our knowing."""
        return self.is_doubtful or (self.trip is not None and self.trip.sent_s is not None)

    def seal(self, producer: Producer, sequence: int, codec: str) -> None:
        """Encodes it under these numbers; once it is encoded, only the numbers can change."""
        if self.signed is None:
            self.data, self.records = encode_batch(self.records, producer, sequence, codec), []
        elif self.signed != (producer, sequence):
            self.data = sign_again(self.data, producer, sequence)
        self.signed = producer, sequence

    def close_share(self, waiter: Waiter, indexes: Sequence[Any], size: int) -> None:
        """Has the waiter wait for the records that were appended last; `size` is the batch's now."""
        self.shares.append((waiter, indexes, self.count))
        self.count, self.size = len(self.records), size

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

    def __init__(self, place: Partition, max_batch_bytes: int, codec: str) -> None:
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
        self._max_batch_bytes = max_batch_bytes
        self._codec = codec

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
        queue, most, start, shares = self.queue, self._max_batch_bytes, 0, 1
        if not queue:
            queue.append(Batch(now_s))
        batch = queue[-1]
        held, size = batch.records, batch.size
        for at, (key, value, headers) in enumerate(records):
            added = RECORD_OVERHEAD + len(key or b"") + len(value or b"")
            if headers:
                added += size_of(headers)
            # a new batch accepts its first record, however large it is
            if size + added > most and held:
                if at > start:
                    batch.close_share(waiter, indexes[start:at], size)
                    shares += 1
                batch = Batch(now_s)
                queue.append(batch)
                held, size, start = batch.records, batch.size, at
            held.append((now_ms, key, value, headers))
            size += added
        batch.close_share(waiter, indexes[start:] if start else indexes, size)
        return shares

    def take_off(self, trip: Trip) -> Batch:
        """The next batch, encoded, travels from here on. Needs a producer and `has_next`."""
        assert self.producer is not None
        batch = self.current or self.queue.popleft()
        batch.seal(self.producer, self._sequence, self._codec)
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
