"""How the brokers in memory answer a fetch: sessions, leader epochs, long polls, and aborted transactions.

`session_errors` of the brokers are the next errors of whole answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from typing import TYPE_CHECKING, Any

from shared.kafka.wire.fetch import FetchRequest, Place, Wish
from shared.kafka.wire.flexible import NO_TAGS, Cursor, compact_size
from tests.fakes.kafka_log import (
    FENCED_EPOCH,
    NOT_LEADER,
    OUT_OF_RANGE,
    SESSION_LOST,
    UNKNOWN_EPOCH,
    UNKNOWN_ID,
    FakePartition,
    error_of,
)

if TYPE_CHECKING:
    from tests.fakes.kafka import FakeKafka


async def answer_fetch(kafka: FakeKafka, node: int, request: FetchRequest) -> bytes:
    """The answer to a fetch, in real bytes, once there is something to answer, or the wait is over."""
    kafka.fetches.append(request)
    session, epoch = request.session
    wishes, forgotten = _decode(request)
    error = kafka.session_errors.popleft() if kafka.session_errors else 0
    if epoch == 0 and kafka.has_sessions:
        session = len(kafka.sessions) + 1
        kafka.sessions[session] = wishes
    elif epoch > 0 and session in kafka.sessions:
        known = kafka.sessions[session]
        known.update(wishes)
        for place in forgotten:
            known.pop(place, None)
        wishes = known
    elif epoch > 0:
        error = SESSION_LOST
    else:
        session = 0
    if error:
        return _encode(error, 0, [])
    loop = asyncio.get_running_loop()
    until_s = loop.time() + request.wait_ms / 1000
    rows = _rows(kafka, node, wishes, request)
    while loop.time() < until_s and not any(row[1] or row[6] or row[7] for row in rows):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(until_s):
                await kafka.changed.wait()
        rows = _rows(kafka, node, wishes, request)
    for topic_id, _, number, *_, data, _, _ in rows if session else ():
        if data:  # the next answer begins with the others
            wishes[Place(topic_id, number)] = wishes.pop(Place(topic_id, number))
    return _encode(0, session, rows)


def _decode(request: FetchRequest) -> tuple[dict[Place, Wish], list[Place]]:
    """What the request's bytes wish and forget."""
    cursor = Cursor(memoryview(request.encode()))
    cursor.raw(25)  # waits, bounds, isolation and session
    wishes, forgotten = {}, []
    for _ in range(cursor.compact_count()):
        topic_id = cursor.raw(16)
        for _ in range(cursor.compact_count()):
            number, leader_epoch, offset = cursor.int32(), cursor.int32(), cursor.int64()
            last_epoch, _, size = cursor.int32(), cursor.int64(), cursor.int32()
            cursor.tags()
            wishes[Place(topic_id, number)] = Wish(offset, leader_epoch, last_epoch, size)
        cursor.tags()
    for _ in range(cursor.compact_count()):
        topic_id = cursor.raw(16)
        forgotten += [Place(topic_id, cursor.int32()) for _ in range(cursor.compact_count())]
        cursor.tags()
    return wishes, forgotten


def _rows(kafka: FakeKafka, node: int, wishes: Any, request: FetchRequest) -> list[Any]:
    rows, left, is_committed = [], request.max_bytes, request.is_committed
    by_id = {(p.topic_id, n): p for (_, n), p in kafka.partitions.items()}
    for (topic_id, number), wish in wishes.items():
        offset, leader_epoch, last_epoch, size = wish
        partition = by_id.get((topic_id, number))
        error = UNKNOWN_ID if partition is None else error_of(partition, node)
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
                # the answer's first batch is whole, whatever its size; another that does not fit is left out
                first = partition.first_batch(offset, limit)
                if left == request.max_bytes or first <= min(size, left):
                    data = partition.between(offset, limit, max(first, min(size, left)))
                    left -= len(data)
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
