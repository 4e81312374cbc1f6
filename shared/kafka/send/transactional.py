"""Writes transactions under one transactional id, over connections that all ids of a process share.

A transaction is `add`, `write` for each partition, `commit_offset` and `end`, in this order. After any
failure its outcome may be unknown, and the writer is of no more use: a new one aborts what is left.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from shared.backoff import Backoff
from shared.errors import Conflict
from shared.kafka.connect.cluster import Cluster
from shared.kafka.connect.coordinators import MOVED_COORDINATOR, find_coordinator
from shared.kafka.connect.refusals import NO_RIGHT, reason_of, refusal
from shared.kafka.record import Partition, Record
from shared.kafka.send.produce_errors import TRY_AGAIN
from shared.kafka.wire.produce import ProduceRequest
from shared.kafka.wire.records import RECORD_OVERHEAD, Encoded, Timed, encode_batch, size_of
from shared.kafka.wire.transactions import (
    AddOffsets,
    AddPartitions,
    CommitOffset,
    EndTransaction,
    InitProducerId,
    error_codes,
)

BATCH_BYTES = 1024 * 1024
"""A record that is larger has a batch of its own. A batch is encoded in one turn of the loop, 0.5 ms; 20 if
its records are tiny."""
TAKEN_AT_ONCE = 200
"""After so many records other tasks run: about 1 ms."""
PRODUCE_TIMEOUT_MS = 10_000

# error codes of Kafka; docs/protocol.md has the table of what each means for a stream
BUSY: Final = frozenset({14, 51})
"""The coordinator loads its state, or still ends the transaction before."""
NOT_HEARD_OF: Final = frozenset({3})
"""The coordinator has not heard of the topic yet, which is new."""
FENCED: Final = frozenset({47, 90})
"""A newer producer of the same transactional id has started."""
_COORDINATED: Final = BUSY | NOT_HEARD_OF | MOVED_COORDINATOR

_NO_LEADER: Final = 5


class ProducerFenced(Conflict):
    """A newer producer with the same transactional id has started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOffset:
    """An offset, with metadata, that a transaction commits for a Kafka group."""

    group: str
    partition: Partition
    offset: int
    metadata: str


class TransactionalWriter:
    """One transactional id. `timeout_ms`: after it, the coordinator aborts a transaction by itself."""

    def __init__(self, cluster: Cluster, transactional_id: str, *, timeout_ms: int) -> None:
        self._cluster = cluster
        self._id = transactional_id
        self._lane = cluster.write_lane(transactional_id)
        self._timeout_ms = timeout_ms
        self._coordinator = -1
        self._groups: dict[str, int] = {}
        """Kafka group → the node id of its coordinator, as last found."""
        self._producer = (-1, -1)
        self._sequences: dict[Partition, int] = {}
        self._asked: tuple[Any, int] | None = None
        """The newest request and its broker."""
        self._trouble = ""
        """Why the newest request has to be repeated, or cannot be sent yet."""

    def __repr__(self) -> str:
        return f"<TransactionalWriter {self._id} as producer {self._producer}>"

    @property
    def waits_for(self) -> str:
        """What a transaction that takes too long waits for, in the words of a reason."""
        if self._asked is None:
            return self._trouble or "no request was sent"
        request, node = self._asked
        what = f"{type(request).__name__} to {self._cluster.name_of(node)}"
        return f"the answer to {what} is {self._trouble}" if self._trouble else f"no answer to {what}"

    async def prepare(self) -> None:
        """Finds and connects its coordinator, without any effect. Raises KafkaUnavailable."""
        self._coordinator = await self._find(self._id, is_group=False)

    async def open(self) -> None:
        """Fences every earlier writer of this id, and ends what it left.

        Raises KafkaUnavailable, or ProducerFenced if another one has opened at the same moment.
        """
        answer = await self._coordinated(InitProducerId(self._id, self._timeout_ms))
        self._producer = answer.producer_id, answer.producer_epoch
        self._sequences.clear()

    async def add(self, partitions: Sequence[Partition]) -> None:
        """Begins a transaction over these partitions, even if nothing is written to them.

        Its end then decides what a broker has left undecided there. Raises ProducerFenced, KafkaUnavailable.
        """
        await self._coordinated(AddPartitions(self._id, self._producer, partitions))

    async def write(self, partition: Partition, records: Iterable[Record]) -> list[int]:
        """Appends the records in order; returns their offsets once all are acknowledged.

        Raises ProducerFenced, KafkaUnavailable.
        """
        offsets: list[int] = []
        # one batch after the other: so a retry can never overtake, and most commits have one batch
        async for batch, count in self._batches(partition, records):
            offsets += await self._produce(partition, batch, count)
        return offsets

    async def _batches(
        self, partition: Partition, records: Iterable[Record]
    ) -> AsyncIterator[tuple[Encoded, int]]:
        """Encoded batches and how many records each has; gives way to other tasks as it takes the records."""
        batch: list[Timed] = []
        room, now_ms = BATCH_BYTES, time.time_ns() // 1_000_000
        for number, (key, value, headers) in enumerate(records, start=1):
            size = RECORD_OVERHEAD + len(key or b"") + len(value or b"") + size_of(headers)
            if batch and size > room:
                yield self._encoded(partition, batch), len(batch)
                batch, room = [], BATCH_BYTES
            batch.append((now_ms, key, value, headers))
            room -= size
            if number % TAKEN_AT_ONCE == 0:
                await asyncio.sleep(0)
        if batch:
            yield self._encoded(partition, batch), len(batch)

    def _encoded(self, partition: Partition, batch: list[Timed]) -> Encoded:
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = (sequence + len(batch)) % 2**31
        return encode_batch(batch, self._producer, sequence, is_transactional=True)

    async def _produce(self, partition: Partition, batch: Encoded, count: int) -> list[int]:
        """Appends one batch; the same sequence numbers make a repetition harmless."""
        topic, number = partition
        request = ProduceRequest(PRODUCE_TIMEOUT_MS, [(partition, batch)], self._id)

        async def ask() -> tuple[Any, set[int]]:
            await self._cluster.know({topic})
            leader = self._cluster.leader(topic, number)
            if leader is None:
                self._asked, self._trouble = None, f"{topic}/{number} has no leader"
                return None, {_NO_LEADER}
            answer = await self._request(leader.node, request)
            code, first = answer.results[partition]
            return first, {code}

        first = await self._until_accepted(ask, TRY_AGAIN, lambda: self._cluster.refresh({topic}))
        return list(range(first, first + count))

    async def commit_offset(self, offset: GroupOffset) -> None:
        """Makes the offset part of the transaction. Raises ProducerFenced, KafkaUnavailable."""
        await self._coordinated(AddOffsets(self._id, self._producer, offset.group))
        await self._commit_offset(offset)

    async def _commit_offset(self, offset: GroupOffset) -> None:
        request = CommitOffset(
            self._id, self._producer, offset.group, offset.partition, offset.offset, offset.metadata
        )

        async def ask() -> tuple[Any, set[int]]:
            if not self._cluster.knows(self._groups.get(offset.group, -1)):
                await find()
            node = self._groups.pop(offset.group)
            answer = await self._request(node, request)
            self._groups[offset.group] = node
            return answer, set(error_codes(answer))

        async def find() -> None:
            self._groups[offset.group] = await self._find(offset.group, is_group=True)

        await self._until_accepted(ask, _COORDINATED, find)

    async def end(self, *, is_commit: bool) -> None:
        """Commits or aborts. Raises ProducerFenced, or KafkaUnavailable: then the outcome is unknown."""
        await self._coordinated(EndTransaction(self._id, self._producer, is_commit=is_commit))

    async def _coordinated(self, request: Any) -> Any:
        """The answer of the transaction's coordinator; finds it (again) where needed."""

        async def ask() -> tuple[Any, set[int]]:
            if not self._cluster.knows(self._coordinator):
                await self.prepare()
            node, self._coordinator = self._coordinator, -1  # unless it answers: another one may soon
            answer = await self._request(node, request)
            self._coordinator = node
            return answer, set(error_codes(answer))

        return await self._until_accepted(ask, _COORDINATED, self.prepare)

    async def _find(self, key: str, *, is_group: bool) -> int:
        self._asked, self._trouble = None, f"the coordinator of {key} is not found"
        return await find_coordinator(self._cluster, key, is_group=is_group)

    async def _request(self, node: int, request: Any) -> Any:
        self._asked, self._trouble = (request, node), ""
        return await self._cluster.request(node, self._lane, request)

    async def _until_accepted(
        self,
        ask: Callable[[], Awaitable[tuple[Any, set[int]]]],
        passing: frozenset[int],
        look_again: Callable[[], Awaitable[None]],
    ) -> Any:
        """Asks until there is no error, or one that does not pass. The caller bounds the time."""
        backoff = Backoff(first_s=0.005, cap_s=0.2)
        while True:
            answer, codes = await ask()
            codes.discard(0)
            if not codes:
                return answer
            if fenced := codes & FENCED:
                raise ProducerFenced(f"{self!r}: {reason_of(max(fenced))}")
            if fatal := codes - passing:
                raise refusal(f"{self!r} is refused", min(fatal & NO_RIGHT, default=max(fatal)))
            self._trouble = self._trouble or reason_of(max(codes))
            await asyncio.sleep(backoff.next_s())
            if passing is TRY_AGAIN or codes & MOVED_COORDINATOR:
                await look_again()
