"""Searches the topic to which a group delivers its sessions, by the time at which they closed.

A stream's sessions are delivered in the order in which they closed, and `closed_at` is the highest append
time of its log by then. So this needs no clock but the broker's. The partition holds other streams, too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import msgspec

from shared.kafka.connect.cluster import Cluster
from shared.kafka.read.ranges import read_range
from shared.kafka.record import Partition

PROBE_BYTES = 1024 * 1024
PROBE_RECORDS = 200
"""A probe that finds no session of the stream among so many ends, and the search goes on before it."""


class ClosedAt(NamedTuple):
    """When a session closed, in an order: number of the stream's log, `closed_at` (ms)."""

    log: int
    closed_at: int


Probe = Callable[[int, int], Awaitable[tuple[int, ClosedAt] | None]]


class _Session(msgspec.Struct, frozen=True):
    stream: int
    closed_at: int
    log: int = 0


_decode = msgspec.json.Decoder(_Session).decode


async def append_time(cluster: Cluster, log: Partition, offset: int, end: int) -> int | None:
    """The timestamp (ms) of the first record from `offset` on, None if there is none below `end`.

    Raises KafkaUnavailable.
    """
    async for record in read_range(
        cluster, log, offset, end - 1, is_committed=False, fetch_bytes=PROBE_BYTES
    ):
        timestamp: int = record.timestamp
        return timestamp
    return None


async def first_closed(
    cluster: Cluster, partition: Partition, stream: int, first: int, end: int
) -> tuple[int, ClosedAt] | None:
    """Offset and time of the stream's first session from `first` on, None if there is none below `end`.

    Raises KafkaUnavailable.
    """
    async for record in read_range(
        cluster, partition, first, end - 1, is_committed=True, fetch_bytes=PROBE_BYTES
    ):
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
            session = _decode(record.value or b"")
            if session.stream == stream:
                return record.offset, ClosedAt(session.log, session.closed_at)
    return None


async def find_since(probe: Probe, first: int, end: int, since: ClosedAt, least: int = PROBE_RECORDS) -> int:
    """An offset from which all of a stream's sessions can be read that closed at `since` or later.

    It is `first`, or lies after a session that closed earlier. Sessions that a crash delivered twice were all
    delivered again after that one, so this holds for them, too. `probe`: finds the stream's first session
    between two offsets; `least`: so many records are not worth a search. Raises what `probe` raises.
    """
    while end - first > least:
        middle = (first + end) // 2
        found = await probe(middle, min(middle + least, end))
        if found is not None and found[1] < since:
            first = found[0] + 1
        else:
            end = middle
    return first
