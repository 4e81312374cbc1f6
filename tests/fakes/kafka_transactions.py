"""The transaction coordinator of the brokers in memory, and what producers write to their partitions.

`refuse` makes the next requests of one kind fail with an error code, before any effect. `coordinator` takes
the requests of transactions only, `group_coordinator` those of groups; if that is None, they are the same.
"""

from __future__ import annotations

import itertools
import struct
from collections import defaultdict, deque
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

from aiokafka.record.memory_records import MemoryRecords

from shared.kafka.wire.produce import ProduceRequest, ProduceResponse
from shared.kafka.wire.transactions import (
    AddedOffsets,
    AddedPartitions,
    AddOffsets,
    AddPartitions,
    CommitOffset,
    CommittedOffsets,
    Ended,
    EndTransaction,
    FindCoordinators,
    FoundCoordinators,
    InitProducerId,
    ProducerId,
)
from tests.fakes.kafka import HOST, FakeKafka
from tests.fakes.kafka_log import Batch

FENCED, INVALID_STATE, OUT_OF_ORDER, UNREGISTERED, NOT_COORDINATOR = 90, 48, 45, 48, 16
Partition = tuple[str, int]


@dataclass(slots=True)
class Held:
    """One transactional id: its producer, and its open transaction."""

    producer: int
    timeout_ms: int
    epoch: int = 0
    partitions: set[Partition] = field(default_factory=set)
    first: dict[Partition, int] = field(default_factory=dict)
    sequences: dict[Partition, int] = field(default_factory=dict)
    group: str = ""
    offsets: dict[tuple[str, Partition], tuple[int, str]] = field(default_factory=dict)


class TransactionalKafka(FakeKafka):
    """Brokers with transactions. `committed`: (group, partition) → offset and metadata.

    `astray`: how many requests another broker coordinates than the one that got them.
    """

    def __init__(self, brokers: int = 1) -> None:
        super().__init__(brokers)
        self.held: dict[str, Held] = {}
        self.committed: dict[tuple[str, Partition], tuple[int, str]] = {}
        self.refusals: defaultdict[type, deque[int | tuple[int, ...]]] = defaultdict(deque)
        self.coordinator = 1
        self.group_coordinator: int | None = None
        self.astray = 0

    def refuse(self, kind: type, *codes: int | tuple[int, ...]) -> None:
        """The next requests of this kind are refused with these codes; a tuple has one for each partition."""
        self.refusals[kind].extend(codes)

    async def answer(self, node: int, request: Any) -> Any:
        """The answer to a request of a producer."""
        kind = type(request)
        request.encode()  # whatever has no value fails
        if self.refusals[kind]:
            return _refused(request, self.refusals[kind].popleft())
        if kind in _COORDINATED and node != self._coordinator_of(is_group=kind is CommitOffset):
            self.astray += 1
            return _refused(request, NOT_COORDINATOR)
        return getattr(self, f"_{kind.__name__}")(request)

    def values(self, topic: str, number: int = 0) -> list[bytes]:
        """The values that readers of committed records see."""
        return [record.value for record in self.records(topic, number)]

    def records(self, topic: str, number: int = 0) -> list[Any]:
        """What they see, with keys and headers."""
        partition = self.partitions[topic, number]
        found: list[Any] = []
        for batch in partition.batches:
            for one in _batches(batch.data):
                gone = any(
                    pid == one.producer_id and first <= one.base_offset <= last
                    for pid, first, last in partition.aborted
                )
                limit = partition.end if partition.stable is None else partition.stable
                if not one.is_control_batch and not gone and one.base_offset < limit:
                    found += one
        return found

    def _FindCoordinators(self, request: Any) -> Any:  # noqa: N802
        assert all(request.keys)
        node = self._coordinator_of(is_group=request.key_type == 0)
        rows: list[Any] = [(key, node, HOST, node, 0, None, {}) for key in request.keys]
        return FoundCoordinators(0, rows, {})

    def _InitProducerId(self, request: Any) -> Any:  # noqa: N802
        held = self.held.get(request.transactional_id)
        if held is None:
            held = self.held[request.transactional_id] = Held(
                1_000 + len(self.held), request.transaction_timeout_ms
            )
        else:
            self._end(held, is_commit=False)
            held.epoch += 1
            held.sequences.clear()
        return ProducerId(0, 0, held.producer, held.epoch, {})

    def _AddPartitions(self, request: Any) -> Any:  # noqa: N802
        held, code = self._writer(request)
        if not code:
            held.partitions |= {(topic, n) for topic, numbers, _ in request.topics for n in numbers}
        return _refused(request, code)

    def _AddOffsets(self, request: Any) -> Any:  # noqa: N802
        held, code = self._writer(request)
        if not code:
            held.group = request.group_id
        return _refused(request, code)

    def _CommitOffset(self, request: Any) -> Any:  # noqa: N802
        held, code = self._writer(request)
        if not code and held.group != request.group_id:
            code = UNREGISTERED
        if not code:
            for topic, rows, _ in request.topics:
                for number, offset, _, metadata, _ in rows:
                    held.offsets[request.group_id, (topic, number)] = offset, metadata
        return _refused(request, code)

    def _EndTransaction(self, request: Any) -> Any:  # noqa: N802
        held, code = self._writer(request)
        if not code and not held.partitions and not held.group:
            code = INVALID_STATE
        if not code:
            self._end(held, is_commit=request.is_commit)
        return _refused(request, code)

    def _ProduceRequest(self, request: Any) -> Any:  # noqa: N802
        ((topic, ((number, pieces),)),) = request.topics.items()
        raw = b"".join(pieces)
        partition = self.partitions[topic, number]
        held = self.held[request.transactional_id]
        (batch,) = _batches(raw)
        code = 0
        if (batch.producer_id, batch.producer_epoch) != (held.producer, held.epoch):
            code = FENCED
        elif (topic, number) not in held.partitions:
            code = UNREGISTERED
        elif held.sequences.get((topic, number), 0) != batch.base_sequence:
            code = OUT_OF_ORDER
        base = partition.end
        if not code:
            count = batch.last_offset_delta + 1
            data = bytearray(raw)
            struct.pack_into(">q", data, 0, base)
            partition.batches.append(Batch(base, base + count - 1, 0, bytes(data)))
            partition.end += count
            held.first.setdefault((topic, number), base)
            held.sequences[topic, number] = (batch.base_sequence + count) % 2**31
            self._settle(topic, number)
        return ProduceResponse({(topic, number): (code, -1 if code else base)})

    def _coordinator_of(self, *, is_group: bool) -> int:
        found = self.group_coordinator if is_group else None
        return self.coordinator if found is None else found

    def _writer(self, request: Any) -> tuple[Held, int]:
        held = self.held[request.transactional_id]
        is_own = (request.producer_id, request.producer_epoch) == (held.producer, held.epoch)
        return held, 0 if is_own else FENCED

    def _end(self, held: Held, *, is_commit: bool) -> None:
        for topic, number in held.partitions:
            partition = self.partitions[topic, number]
            if (topic, number) in held.first and not is_commit:
                partition.aborted.append((held.producer, held.first[topic, number], partition.end))
            partition.append(b"", producer=held.producer, control=True)
        if is_commit:
            self.committed.update(held.offsets)
        touched = set(held.first)
        held.partitions, held.first, held.offsets, held.group = set(), {}, {}, ""
        for topic, number in touched:
            self._settle(topic, number)
        self.wake()

    def _settle(self, topic: str, number: int) -> None:
        """The partition is decided below the first record of an open transaction."""
        firsts = [held.first[topic, number] for held in self.held.values() if (topic, number) in held.first]
        self.partitions[topic, number].stable = min(firsts, default=None)


_COORDINATED = (InitProducerId, AddPartitions, AddOffsets, CommitOffset, EndTransaction)
_ANSWERS: dict[type, Any] = {
    AddPartitions: AddedPartitions,
    AddOffsets: AddedOffsets,
    CommitOffset: CommittedOffsets,
    EndTransaction: Ended,
}


def _refused(request: Any, code: int | tuple[int, ...]) -> Any:
    """The answer with this error code everywhere, or one for each partition; 0 is none."""
    codes = itertools.cycle(code if isinstance(code, tuple) else (code,))
    match request:
        case FindCoordinators():
            return FoundCoordinators(0, [(key, -1, "", -1, code, None, {}) for key in request.keys], {})
        case InitProducerId():
            return ProducerId(0, code, -1, -1, {})
        case ProduceRequest():
            ((topic, ((number, _),)),) = request.topics.items()
            return ProduceResponse({(topic, number): (next(codes), -1)})
        case AddPartitions():
            rows: list[Any] = [
                (topic, [(n, next(codes), {}) for n in ns], {}) for topic, ns, _ in request.topics
            ]
        case CommitOffset():
            rows = [(topic, [(row[0], next(codes), {}) for row in ns], {}) for topic, ns, _ in request.topics]
        case _:
            return _ANSWERS[type(request)](0, code, {})
    kind = _ANSWERS[type(request)]
    return kind.decode(BytesIO(kind(0, rows, {}).encode()))


def _batches(raw: bytes) -> list[Any]:
    records, found = MemoryRecords(raw), []
    while (batch := records.next_batch()) is not None:
        found.append(batch)
    return found
