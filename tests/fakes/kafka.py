"""Kafka's brokers in memory, as far as reading needs them: metadata, offsets and fetches, in real bytes.

`FakeKafka.connect` takes the place of a connection's handshake. A connection answers one request after the
other, as a broker does. `refuse` makes the next answers about a partition carry an error code; `is_mute`
keeps all answers back, `muted` those of some brokers; `cut` breaks the connections.
"""

from __future__ import annotations

import asyncio
import math
import struct
from collections import deque
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

from aiokafka.errors import KafkaConnectionError
from aiokafka.protocol.offset import OffsetRequest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c

from shared.kafka.wire.fetch import FetchRequest, FetchResponse, Wish
from shared.kafka.wire.flexible import NO_TAGS, Cursor, compact_size
from shared.kafka.wire.metadata import MetadataRequest, MetadataResponse

HOST = "fake"
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
            _sign(raw)
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

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to this one, and where its records end."""
        ends = [(batch.epoch, batch.last + 1) for batch in self.batches if batch.epoch <= epoch]
        return ends[-1] if ends else (-1, self.start)


class FakeKafka:
    """Brokers 1 … `brokers` on ports of their numbers. `fetches`: every fetch that was answered."""

    def __init__(self, brokers: int = 1) -> None:
        self.brokers = list(range(1, brokers + 1))
        self.partitions: dict[tuple[str, int], FakePartition] = {}
        self.connections: list[FakeConnection] = []
        self.fetches: list[FetchRequest] = []
        self.metadata_reads = 0
        self.has_sessions = True
        self.is_mute = False
        self.muted: set[int] = set()
        self.unregistered = False
        self.controller = 1
        self.sessions: dict[int, dict[tuple[bytes, int], Wish]] = {}
        self.changed = asyncio.Event()
        self._topics = 0

    def create(self, topic: str, partition: int = 0, leader: int = 1) -> FakePartition:
        """Creates a topic, or creates it anew."""
        self._topics += 1
        made = self.partitions[topic, partition] = FakePartition(self._topics.to_bytes(16, "big"), leader)
        return made

    async def connect(self, host: str, port: int) -> Any:
        """A connection to the broker on that port. Raises KafkaConnectionError if there is none."""
        await asyncio.sleep(0.001)
        if port not in self.brokers:
            raise KafkaConnectionError(f"nobody listens on {port}")
        connection = FakeConnection(self, port)
        self.connections.append(connection)
        return connection

    async def answer(self, node: int, request: Any) -> Any:
        """The answer to a request of another kind."""
        raise NotImplementedError(f"{request!r} to {node}")

    def cut(self, node: int) -> None:
        """Breaks all connections to a broker."""
        for connection in self.connections:
            if connection.node == node:
                connection.close()

    def wake(self) -> None:
        """Answers the long polls that have something to answer by now."""
        self.changed.set()
        self.changed = asyncio.Event()


class FakeConnection:
    """What `AIOKafkaConnection` offers."""

    lifetime_s = math.inf

    def __init__(self, kafka: FakeKafka, node: int) -> None:
        self.node = node
        self._kafka = kafka
        self._turn = asyncio.Lock()
        self._broken = asyncio.get_running_loop().create_future()

    def connected(self) -> bool:
        return not self._broken.done()

    def close(self) -> None:
        if not self._broken.done():
            self._broken.set_result(None)

    async def leave(self) -> None:
        self.close()

    async def send(self, request: Any) -> Any:
        """The broker's answer."""
        answering = asyncio.ensure_future(self._answer(request))
        try:
            await asyncio.wait((answering, self._broken), return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                raise KafkaConnectionError("broken")
            return answering.result()
        finally:
            answering.cancel()

    async def _answer(self, request: Any) -> Any:
        async with self._turn:
            await asyncio.sleep(0.001)
            while self._kafka.is_mute or self.node in self._kafka.muted:
                await self._kafka.changed.wait()
            if isinstance(request, MetadataRequest):
                return self._metadata(request)
            if isinstance(request, OffsetRequest):
                return self._offsets(request)
            if isinstance(request, FetchRequest):
                return FetchResponse.decode(BytesIO(await self._fetch(request)))
            return await self._kafka.answer(self.node, request)

    def _metadata(self, request: Any) -> Any:
        self._kafka.metadata_reads += 1
        topics: list[Any] = []
        every = dict.fromkeys(topic for topic, _ in self._kafka.partitions)
        for name in every if request.topics is None else [name for _, name, _ in request.topics]:
            found = {n: p for (topic, n), p in self._kafka.partitions.items() if topic == name}
            partitions: list[Any] = [
                (0, n, p.leader, p.epoch, [*range(p.replicas)], [], [], {}) for n, p in found.items()
            ]
            topic_id = next((p.topic_id for p in found.values()), bytes(16))
            topics.append((0 if found else UNKNOWN_TOPIC, name, topic_id, False, partitions, 0, {}))
        named = () if self._kafka.unregistered else self._kafka.brokers
        brokers: list[Any] = [(node, HOST, node, None, {}) for node in named]
        body = MetadataResponse(0, brokers, None, self._kafka.controller, topics, {}).encode()
        return MetadataResponse.decode(BytesIO(body))

    def _offsets(self, request: Any) -> Any:
        answers = []
        for topic, asked in request._topics:
            rows = []
            for number, which in asked:
                partition = self._kafka.partitions.get((topic, number))
                error = self._error(partition)
                at = -1 if partition is None else partition.at(which)
                if partition is not None and which == -1 and request._isolation_level:
                    at = partition.end if partition.stable is None else partition.stable
                rows.append((number, error, -1, -1 if error else at))
            answers.append((topic, rows))
        return type("Answer", (), {"topics": answers})()

    def _error(self, partition: FakePartition | None) -> int:
        if partition is None:
            return UNKNOWN_TOPIC
        if partition.refusals:
            return partition.refusals.popleft()
        return 0 if partition.leader == self.node else NOT_LEADER

    async def _fetch(self, request: FetchRequest) -> bytes:
        cursor = Cursor(memoryview(request.encode()))
        _, wait_ms, _, max_bytes = (cursor.int32() for _ in range(4))
        is_committed, session, epoch = cursor.int8(), cursor.int32(), cursor.int32()
        wishes = {}
        for _ in range(cursor.compact_count()):
            topic_id = cursor.raw(16)
            for _ in range(cursor.compact_count()):
                number, leader_epoch, offset = cursor.int32(), cursor.int32(), cursor.int64()
                last_epoch, _, size = cursor.int32(), cursor.int64(), cursor.int32()
                cursor.tags()
                wishes[topic_id, number] = Wish(offset, leader_epoch, last_epoch, size)
            cursor.tags()
        forgotten = []
        for _ in range(cursor.compact_count()):
            topic_id = cursor.raw(16)
            forgotten += [(topic_id, cursor.int32()) for _ in range(cursor.compact_count())]
            cursor.tags()
        self._kafka.fetches.append(request)
        error = 0
        if epoch == 0 and self._kafka.has_sessions:
            session = len(self._kafka.sessions) + 1
            self._kafka.sessions[session] = wishes
        elif epoch > 0:
            if session in self._kafka.sessions:
                known = self._kafka.sessions[session]
                known.update(wishes)
                for place in forgotten:
                    known.pop(place, None)
                wishes = known
            else:
                error, wishes = SESSION_LOST, {}
        else:
            session = 0
        rows = self._rows(wishes, max_bytes, bool(is_committed))
        until_s = asyncio.get_running_loop().time() + wait_ms / 1000
        while not error and not any(row[1] or row[6] or row[7] for row in rows):
            left_s = until_s - asyncio.get_running_loop().time()
            if left_s <= 0:
                break
            try:
                async with asyncio.timeout(left_s):
                    await self._kafka.changed.wait()
            except TimeoutError:
                break
            rows = self._rows(wishes, max_bytes, bool(is_committed))
        return _encode(error, session, rows)

    def _rows(self, wishes: Any, max_bytes: int, is_committed: bool) -> list[Any]:
        rows = []
        by_id = {(p.topic_id, n): p for (_, n), p in self._kafka.partitions.items()}
        for (topic_id, number), wish in wishes.items():
            offset, leader_epoch, last_epoch, size = wish
            partition = by_id.get((topic_id, number))
            error = UNKNOWN_ID if partition is None else self._error(partition)
            data, end, start, diverges, leader = b"", -1, -1, None, None
            if partition is not None and error == NOT_LEADER:
                leader = partition.leader, partition.epoch
            if partition is not None and not error:
                if leader_epoch not in (-1, partition.epoch):
                    error = FENCED_EPOCH if leader_epoch < partition.epoch else UNKNOWN_EPOCH
                elif last_epoch >= 0 and _diverges(partition, last_epoch, offset):
                    diverges = partition.end_of_epoch(last_epoch)
                elif not partition.start <= offset <= partition.end:
                    error = OUT_OF_RANGE
                else:
                    limit = partition.end
                    if is_committed and partition.stable is not None:
                        limit = partition.stable
                    end, start = limit, partition.start
                    data = partition.between(offset, limit, size)
            aborted = []
            if partition is not None and is_committed:
                aborted = [(pid, first) for pid, first, last in partition.aborted if last >= wish.offset]
            rows.append((topic_id, error, number, end, start, aborted, data, diverges, leader))
        return rows


def _diverges(partition: FakePartition, epoch: int, offset: int) -> bool:
    known, end = partition.end_of_epoch(epoch)
    return known < epoch or end < offset


def _encode(error: int, session: int, rows: list[Any]) -> bytes:
    parts = [struct.pack(">ihi", 0, error, session), compact_size(len(rows))]
    for topic_id, code, number, end, start, aborted, data, diverges, leader in rows:
        parts += [topic_id, compact_size(1), struct.pack(">ihqqq", number, code, end, end, start)]
        parts.append(compact_size(len(aborted)))
        for producer, first in aborted:
            parts += [struct.pack(">qq", producer, first), NO_TAGS]
        parts += [struct.pack(">i", -1), compact_size(len(data)), data]
        tags = []
        if diverges is not None:
            tags.append((0, struct.pack(">iq", *diverges) + NO_TAGS))
        if leader is not None:
            tags.append((1, struct.pack(">ii", *leader) + NO_TAGS))
        parts.append(bytes([len(tags)]))
        for tag, raw in tags:
            parts += [bytes([tag, len(raw)]), raw]
        parts.append(NO_TAGS)
    parts.append(NO_TAGS)
    return b"".join(parts)


def _sign(raw: bytearray) -> None:
    """Writes the batch's checksum anew."""
    struct.pack_into(">I", raw, 17, calc_crc32c(bytes(raw[21:])))
