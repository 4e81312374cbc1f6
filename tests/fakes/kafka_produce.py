"""Brokers in memory that store records without transactions, once each: they count what each producer sent.

`partition.refusals` are answered before anything is appended, `late_refusals` after it. The next
`lost_answers` requests take effect, and the connection breaks before the answer; the replicas of `lagging`
partitions do not follow: the broker appends, waits as long as the request says, and answers that they have
not. `delay_s` is the time that each request takes.
"""

from __future__ import annotations

import asyncio
import struct
from collections import defaultdict, deque
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

from aiokafka.errors import KafkaConnectionError
from aiokafka.protocol.produce import ProduceRequest_v7, ProduceResponse_v7
from aiokafka.record.memory_records import MemoryRecords

from shared.kafka.wire.produce import ProduceRequest, ProduceResponse
from shared.kafka.wire.transactions import InitProducerId, ProducerId
from tests.fakes.kafka import FakeKafka
from tests.fakes.kafka_log import NOT_LEADER, UNKNOWN_TOPIC, Batch, FakePartition

Partition = tuple[str, int]
TIMED_OUT, OUT_OF_ORDER, DUPLICATE = 7, 45, 46
REMEMBERED = 5
"""A broker knows where the last five batches of a producer are."""


@dataclass(slots=True)
class Known:
    """What a partition knows of a producer: the next sequence number, and its last batches."""

    next: int
    batches: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=REMEMBERED))


class ProducingKafka(FakeKafka):
    """Brokers to which idempotent producers write. `requests`: node and places of each that was answered."""

    def __init__(self, brokers: int = 1) -> None:
        super().__init__(brokers)
        self.requests: list[tuple[int, list[Partition]]] = []
        self.late_refusals: defaultdict[Partition, deque[int]] = defaultdict(deque)
        self.lost_answers = 0
        self.lagging: set[Partition] = set()
        self.delay_s = 0.0
        self.producers = 0
        self.init_refusals: deque[int] = deque()
        self.known: dict[tuple[bytes, int, int], Known] = {}
        self.in_flight = self.most_in_flight = 0

    async def answer(self, node: int, request: Any) -> Any:
        """The answer to a request of a producer."""
        if isinstance(request, InitProducerId):
            return self._init(request)
        assert isinstance(request, ProduceRequest)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            return await self._produce(node, request)
        finally:
            self.in_flight -= 1

    def values(self, topic: str, number: int = 0) -> list[bytes]:
        """All values of a partition, in order."""
        return [record.value for record in self.records(topic, number)]

    def records(self, topic: str, number: int = 0) -> list[Any]:
        """All records of a partition, in order; checks the batches' checksums."""
        found = []
        for stored in self.partitions[topic, number].batches:
            batches = MemoryRecords(stored.data)
            while (batch := batches.next_batch()) is not None:
                assert batch.validate_crc()
                found += list(batch)
        return found

    def forget_producers(self) -> None:
        """Loses what the brokers know of producers, as a log that was truncated; they then refuse gaps."""
        for known in self.known.values():
            known.next = -1
            known.batches.clear()

    def _init(self, request: InitProducerId) -> Any:
        assert request.transactional_id is None
        if self.init_refusals:
            return ProducerId(0, self.init_refusals.popleft(), -1, -1, {})
        self.producers += 1
        return ProducerId(0, 0, 1_000 + self.producers, 0, {})

    async def _produce(self, node: int, request: ProduceRequest) -> Any:
        decoded = ProduceRequest_v7.decode(BytesIO(request.encode()))
        await asyncio.sleep(self.delay_s)
        results = {
            (topic, number): self._append(node, (topic, number), raw)
            for topic, rows in decoded.topics
            for number, raw in rows
        }
        self.requests.append((node, list(results)))
        if self.lost_answers:
            self.lost_answers -= 1
            self.cut(node)
            raise KafkaConnectionError("cut")
        if lagging := self.lagging & results.keys():
            await asyncio.sleep(decoded.timeout / 1000)
            results |= dict.fromkeys(lagging, (TIMED_OUT, -1))
        rows = [(topic, [(number, *result, -1, 0)]) for (topic, number), result in results.items()]
        return ProduceResponse.decode(BytesIO(ProduceResponse_v7(rows, 0).encode()))

    def _append(self, node: int, place: Partition, raw: bytes) -> tuple[int, int]:
        """Error code and first offset."""
        partition = self.partitions.get(place)
        if partition is None:
            return UNKNOWN_TOPIC, -1
        if partition.leader != node:
            return NOT_LEADER, -1
        if partition.refusals:
            return partition.refusals.popleft(), -1
        code, offset = self._store(partition, place[1], raw)
        if self.late_refusals[place]:
            return self.late_refusals[place].popleft(), -1
        return code, offset

    def _store(self, partition: FakePartition, number: int, raw: bytes) -> tuple[int, int]:
        batch = MemoryRecords(raw).next_batch()
        assert batch is not None
        assert batch.validate_crc()
        key = partition.topic_id, number, batch.producer_id
        known = self.known.setdefault(key, Known(0))
        for sequence, offset in known.batches:
            if sequence == batch.base_sequence:
                return 0, offset
        if batch.base_sequence < known.next:
            return DUPLICATE, -1
        if batch.base_sequence > known.next:
            return OUT_OF_ORDER, -1
        base, count = partition.end, batch.last_offset_delta + 1
        data = bytearray(raw)
        struct.pack_into(">q", data, 0, base)
        partition.batches.append(Batch(base, base + count - 1, 0, bytes(data)))
        partition.end += count
        known.next = batch.base_sequence + count
        known.batches.append((batch.base_sequence, base))
        return 0, base
