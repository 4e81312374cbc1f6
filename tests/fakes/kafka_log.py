"""One partition's log in memory: real batches, leader epochs, and transactions, aborted or open."""

from __future__ import annotations

import struct
from collections import deque
from dataclasses import dataclass, field

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c

FIRST_TIME_MS = 1_000
"""Of the record at offset 0; each one is a millisecond younger than the one before."""
OUT_OF_RANGE, UNKNOWN_TOPIC, NOT_LEADER, FENCED_EPOCH, UNKNOWN_EPOCH, UNKNOWN_ID = 1, 3, 6, 74, 76, 100
SESSION_LOST = 70


@dataclass(slots=True)
class Batch:
    """Records as the log holds them: offsets `base` … `last`, written under a leader epoch."""

    base: int
    last: int
    epoch: int
    data: bytes


@dataclass(slots=True)
class FakePartition:
    """A partition's log and its leader. `stable`: below the first open transaction; None: there is none.

    `aborted`: producer, first and last offset of each aborted transaction.
    """

    topic_id: bytes
    leader: int = 1
    epoch: int = 0
    replicas: int = 1
    start: int = 0
    end: int = 0
    stable: int | None = None
    batches: list[Batch] = field(default_factory=list)
    aborted: list[tuple[int, int, int]] = field(default_factory=list)
    refusals: deque[int] = field(default_factory=deque)

    def append(self, *values: bytes, producer: int = -1, control: bool = False, codec: int = 0) -> None:
        """Appends one batch."""
        builder = DefaultRecordBatchBuilder(
            magic=2,
            compression_type=codec,
            is_transactional=producer >= 0,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=0,
            batch_size=1 << 24,
        )
        for n, value in enumerate(values):
            builder.append(n, timestamp=FIRST_TIME_MS + self.end + n, key=b"k", value=value, headers=[])
        raw = bytearray(builder.build())
        struct.pack_into(">q", raw, 0, self.end)
        struct.pack_into(">i", raw, 12, self.epoch)
        if control:
            raw[22] |= 0x20  # the second byte of the attributes
            sign(raw)
        self.batches.append(Batch(self.end, self.end + len(values) - 1, self.epoch, bytes(raw)))
        self.end += len(values)

    def at(self, which: int) -> int:
        """The offset that ListOffsets answers: by time, records are as old as `append` says."""
        if which == -2:
            return self.start
        if which == -1:
            return self.end
        offset = max(self.start, which - FIRST_TIME_MS)
        return offset if offset < self.end else -1

    def truncate(self, end: int) -> None:
        """Loses the end of the log, and gets a new leader epoch, as after an unclean restart."""
        self.batches = [batch for batch in self.batches if batch.last < end]
        self.end = end
        self.epoch += 1

    def between(self, offset: int, limit: int, size: int) -> bytes:
        """The batches with records from the offset on, below the limit; the last one may be cut."""
        data = b"".join(batch.data for batch in self.batches if offset <= batch.last < limit)
        return data[:size]

    def first_batch(self, offset: int, limit: int) -> int:
        """The size of the first batch of `between`; 0 if there is none."""
        return next((len(batch.data) for batch in self.batches if offset <= batch.last < limit), 0)

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to this one, and where its records end."""
        ends = [(batch.epoch, batch.last + 1) for batch in self.batches if batch.epoch <= epoch]
        return ends[-1] if ends else (-1, self.start)


def sign(raw: bytearray) -> None:
    """Writes the batch's checksum anew."""
    struct.pack_into(">I", raw, 17, calc_crc32c(bytes(raw[21:])))


def error_of(partition: FakePartition | None, node: int) -> int:
    """The error code of a broker's answer about the partition: the next refusal, or where it is; 0: none."""
    if partition is None:
        return UNKNOWN_TOPIC
    if partition.refusals:
        return partition.refusals.popleft()
    return 0 if partition.leader == node else NOT_LEADER
