"""The records of a fetch, taken straight from its batches: aiokafka's codecs without its consumer.

`scan` looks at the batches' headers alone, so that the next fetch can be sent before anything is decoded;
`RecordBuffer` decodes as much as a caller asks for.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import dropwhile, islice
from typing import Any

from aiokafka.errors import CorruptRecordException
from aiokafka.record.memory_records import MemoryRecords
from google_crc32c import value as crc32c

from shared.errors import KafkaUnavailable

_PREFIX = struct.Struct(">qiibIhi")
"""Of a batch: first offset, length of the rest, leader epoch, magic, CRC, attributes, last offset delta."""
_CRC_FROM = 21
"""The checksum covers what follows it."""
_LENGTH_FROM = 12
"""A batch's length counts the bytes after its first offset and the length itself."""
_MAGIC = 2
"""The format since Kafka 0.11."""


@dataclass(frozen=True, slots=True)
class Scan:
    """What complete batches hold: the offset after the last record, its leader's epoch, and their bytes.

    `size` is 0 if there is no complete batch.
    """

    next_offset: int
    epoch: int
    size: int


def scan(data: bytes) -> Scan:
    """The batches in `data`, of which the last may be cut. Raises KafkaUnavailable if one is too old."""
    at, next_offset, epoch = 0, -1, -1
    while at + _PREFIX.size <= len(data):
        base, length, leader_epoch, magic, _, _, last_delta = _PREFIX.unpack_from(data, at)
        if length < _PREFIX.size - _LENGTH_FROM or at + _LENGTH_FROM + length > len(data):
            break
        if magic != _MAGIC:  # its fields are at other places
            raise KafkaUnavailable("records in a format that Baton does not read", cause=f"at offset {base}")
        at += _LENGTH_FROM + length
        next_offset, epoch = base + last_delta + 1, leader_epoch
    return Scan(next_offset, epoch, at)


@dataclass(slots=True)
class _Fetched:
    data: bytes
    aborted: Sequence[tuple[int, int]]


class RecordBuffer:
    """Fetched bytes that wait to be decoded, in order. `size`: bytes of those not decoded completely.

    `position`: the offset after the last record that was taken. With `is_committed`, records of aborted
    transactions are left out.
    """

    def __init__(self, *, is_committed: bool) -> None:
        self.size = 0
        self.position = -1
        self._is_committed = is_committed
        self._fetched: deque[_Fetched] = deque()
        self._batches: Iterator[tuple[int, Iterator[Any]]] | None = None
        self._batch: tuple[int, Iterator[Any]] | None = None

    def __repr__(self) -> str:
        return f"<RecordBuffer of {self.size} bytes at {self.position}>"

    def start(self, position: int) -> None:
        """Discards everything; records before the position are skipped from here on."""
        self._fetched.clear()
        self._batches = self._batch = None
        self.size, self.position = 0, position

    def add(self, data: bytes, aborted: Sequence[tuple[int, int]] = ()) -> None:
        """Appends complete batches, which follow those before."""
        self._fetched.append(_Fetched(data, aborted))
        self.size += len(data)

    def take(self, most: int) -> list[Any]:
        """The next records, at most `most`; none if there are none.

        Raises KafkaUnavailable if a batch is damaged: the position stays before it.
        """
        taken: list[Any] = []
        try:
            while (room := most - len(taken)) and self._has_batch():
                assert self._batch is not None
                next_offset, records = self._batch
                # not one by one: a step of Python for each would cost as much as decoding it
                some = list(islice(records, room))
                taken += some
                if len(some) == room:
                    self.position = some[-1].offset + 1
                else:
                    self.position, self._batch = next_offset, None
        # a codec may raise anything; only the log it reads is concerned
        except Exception as error:
            self._batches = self._batch = None
            # what precedes the damage first; the next call raises
            if not taken:
                raise KafkaUnavailable("damaged records", cause=f"at {self.position}: {error!r}") from error
        return taken

    def _has_batch(self) -> bool:
        """Whether there is a batch to take records from; frees the bytes of those before."""
        while self._batch is None and self._fetched:
            if self._batches is None:
                self._batches = self._decoded(self._fetched[0])
            self._batch = next(self._batches, None)
            if self._batch is None:
                self.size -= len(self._fetched.popleft().data)
                self._batches = None
        return self._batch is not None

    def _decoded(self, fetched: _Fetched) -> Iterator[tuple[int, Iterator[Any]]]:
        """Of each batch, the offset after it, and its records from the position on."""
        aborted_from = sorted(fetched.aborted, key=lambda aborted: aborted[1], reverse=True)
        aborting: set[int] = set()
        batches, end = MemoryRecords(fetched.data), 0
        while (batch := batches.next_batch()) is not None:
            at = end
            _, length, _, _, crc, _, _ = _PREFIX.unpack_from(fetched.data, at)
            end += _LENGTH_FROM + length
            # before any batch is skipped: a skipped marker still ends its producer's transaction
            if self._is_committed:
                while aborted_from and aborted_from[-1][1] <= batch.base_offset:
                    aborting.add(aborted_from.pop()[0])
            if batch.is_control_batch:
                aborting.discard(batch.producer_id)
            if batch.next_offset <= self.position:
                continue
            # by the processor: aiokafka computes it in software, which takes as long as decoding the records
            if crc32c(fetched.data[at + _CRC_FROM : end]) != crc:
                raise CorruptRecordException(f"wrong checksum of the batch at {batch.base_offset}")
            is_aborted = batch.is_transactional and batch.producer_id in aborting
            records: Iterable[Any] = () if batch.is_control_batch or is_aborted else batch
            yield batch.next_offset, dropwhile(self._is_taken, records)

    def _is_taken(self, record: Any) -> bool:
        return bool(record.offset < self.position)
