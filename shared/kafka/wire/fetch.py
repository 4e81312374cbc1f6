"""Kafka's Fetch in version 13, written by hand: it names topics by id, and its session sends only changes.

Version 13 reports three things that aiokafka's does not: a topic that was deleted and made again has another
id; the broker compares the epoch of the record before the position, so a log that lost its end answers with
where it diverges (KIP-320, KIP-595); and a broker that no longer leads names the one that does. Used by
`fetcher.py` and `ranges.py`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import NamedTuple

from shared.kafka.wire.flexible import NO_TAGS, Cursor, FlexibleRequest, compact_size

NO_EPOCH = -1
"""The leader's epoch, or a record's, is unknown: the broker does not compare."""
SESSIONLESS = 0, -1
"""Id and epoch of a fetch that the broker remembers nothing of."""
_DIVERGING, _CURRENT_LEADER = 0, 1
_HEAD = struct.Struct(">iiiibii")
_PARTITION = struct.Struct(">iiqiqi")


class Place(NamedTuple):
    """A partition as a fetch names it."""

    topic_id: bytes
    partition: int


class Wish(NamedTuple):
    """From where to fetch a partition, and at most how many bytes.

    `leader_epoch`: of the leader that the client believes in; `last_epoch`: of the record before `offset`, as
    it was read. The broker compares both, unless they are `NO_EPOCH`.
    """

    offset: int
    leader_epoch: int
    last_epoch: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class FetchRequest(FlexibleRequest):
    """`wait_ms`: how long the broker may wait for the first byte. `max_bytes`: of the whole response, softly.

    `session`: id and epoch; the first fetch of a session has epoch 0 and id 0.
    """

    API_KEY = 1
    API_VERSION = 13

    wishes: Mapping[Place, Wish]
    wait_ms: int
    max_bytes: int
    forgotten: Sequence[Place] = ()
    session: tuple[int, int] = SESSIONLESS
    is_committed: bool = False

    def encode(self) -> bytes:
        """The body."""
        head = _HEAD.pack(-1, self.wait_ms, 1, self.max_bytes, self.is_committed, *self.session)
        parts = [head, compact_size(len(topics := _by_topic(self.wishes)))]
        for topic_id, partitions in topics.items():
            parts += [topic_id, compact_size(len(partitions))]
            for place in partitions:
                offset, leader_epoch, last_epoch, max_bytes = self.wishes[place]
                parts += [
                    _PARTITION.pack(place.partition, leader_epoch, offset, last_epoch, -1, max_bytes),
                    NO_TAGS,
                ]
            parts.append(NO_TAGS)
        parts.append(compact_size(len(topics := _by_topic(self.forgotten))))
        for topic_id, partitions in topics.items():
            parts += [topic_id, compact_size(len(partitions))]
            parts += [place.partition.to_bytes(4, "big") for place in partitions]
            parts.append(NO_TAGS)
        parts += [compact_size(0), NO_TAGS]  # no rack: reads come from the leader
        return b"".join(parts)


class FetchedPartition(NamedTuple):
    """What the broker says about one partition.

    `end`: the next offset that readers may see; `start`: the log's first one. Both are -1 if unknown.
    `diverges_at`: the log's end before the client's epoch, if what the client has read is not in it; else
    None. `leader`: id and epoch of the leader, if this broker is not it. `aborted`: producer id and first
    offset of each aborted transaction in `records`.
    """

    place: Place
    error: int
    end: int
    start: int
    aborted: Sequence[tuple[int, int]]
    records: bytes
    diverges_at: int | None
    leader: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class FetchResponse:
    """`error` concerns the session; each partition has its own."""

    error: int
    session_id: int
    partitions: Sequence[FetchedPartition]

    @classmethod
    def decode(cls, buffer: BytesIO) -> FetchResponse:
        """The body, from the buffer's position on. Raises ValueError if it is cut short."""
        # not `getbuffer`, which copies all of it
        cursor = Cursor(memoryview(buffer.getvalue()), buffer.tell())
        cursor.int32()  # throttled for so many ms, by a broker that has waited already
        error, session_id = cursor.int16(), cursor.int32()
        return cls(error=error, session_id=session_id, partitions=list(_partitions(cursor)))


FetchRequest.RESPONSE_TYPE = FetchResponse


def _by_topic(places: Iterable[Place]) -> dict[bytes, list[Place]]:
    topics: dict[bytes, list[Place]] = {}
    for place in places:
        topics.setdefault(place.topic_id, []).append(place)
    return topics


def _partitions(cursor: Cursor) -> Iterator[FetchedPartition]:
    for _ in range(cursor.compact_count()):
        topic_id = cursor.raw(16)
        for _ in range(cursor.compact_count()):
            yield _partition(topic_id, cursor)
        cursor.tags()


def _partition(topic_id: bytes, cursor: Cursor) -> FetchedPartition:
    place, error = Place(topic_id, cursor.int32()), cursor.int16()
    high_watermark, stable, start = cursor.int64(), cursor.int64(), cursor.int64()
    aborted = []
    for _ in range(cursor.compact_count()):
        aborted.append((cursor.int64(), cursor.int64()))
        cursor.tags()
    cursor.int32()  # the replica to read from, if the client had named a rack
    records = cursor.compact_bytes()
    tags = cursor.tags()
    diverges_at = leader = None
    if (tag := tags.get(_DIVERGING)) is not None:
        _, diverges_at = struct.unpack_from(">iq", tag)
    if (tag := tags.get(_CURRENT_LEADER)) is not None:
        leader = struct.unpack_from(">ii", tag)
    end = high_watermark if stable < 0 else min(stable, high_watermark)
    return FetchedPartition(place, error, end, start, aborted, records, diverges_at, leader)
