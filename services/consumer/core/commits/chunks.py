"""Puts covered keys and parked sessions into checkpoint records of bounded size.

Pure. A parked session may be larger than a record: its fragments may have 1.9 MB, and a million of them
another 14 MB of ids and lengths. So it is stored as several chunks, each with the next ids and fragments. A
covered key always fits, because a key remembers at most 2,500 ids. `writer.py` and `parking.py` use it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from services.consumer.core.commits.checkpoint_format import (
    AGE_BYTES,
    FRAGMENT_BYTES,
    ID_BYTES,
    CoveredWire,
    ParkedWire,
    size_of_session,
)
from services.consumer.core.sessions.state import OpenSession

Part = CoveredWire | ParkedWire


def size_of_part(part: Part) -> int:
    """About how many bytes the part takes in a record."""
    size = len(part.key) + 40 + ID_BYTES * len(part.ids)
    if isinstance(part, CoveredWire):
        return size + AGE_BYTES * len(part.ages)
    return size + sum(map(len, part.fragments)) + FRAGMENT_BYTES * len(part.fragments) + 40


def grouped(parts: Sequence[Part], room: int) -> Iterator[list[Part]]:
    """Yields the parts in order, in groups of about `room` bytes."""
    group: list[Part] = []
    size = 0
    for part in parts:
        part_size = size_of_part(part)
        if group and size + part_size > room:
            yield group
            group, size = [], 0
        group.append(part)
        size += part_size
    if group:
        yield group


def parked_chunks(session: OpenSession, room: int, *, rewrites: bool) -> Iterator[ParkedWire]:
    """Yields what a checkpoint lacks of the session (`rewrites`: all of it), in chunks of about `room` bytes.

    Every chunk has the fold state, and at least one id or fragment, if there are any. Only a chunk with a
    single fragment exceeds `room`.
    """
    start, ids_start = (0, 0) if rewrites else (session.parked, session.parked_ids)
    ids = list(islice(session.ids or (), ids_start, None))
    data = session.data[start:]
    if size_of_session(session) <= room:
        yield _chunk(session, start, data, ids_start, ids)
        return
    # what every chunk costs before its first id or fragment
    empty = size_of_part(_chunk(session, 0, [], 0, []))
    while ids or data:
        left = room - empty
        some_ids = ids[: max(1, left // ID_BYTES)]
        left -= ID_BYTES * len(some_ids)
        count = 0
        for fragment in data:
            left -= len(fragment) + FRAGMENT_BYTES
            if left < 0 and (count or some_ids):
                break
            count += 1
        yield _chunk(session, start, data[:count], ids_start, some_ids)
        start, ids_start = start + count, ids_start + len(some_ids)
        data, ids = data[count:], ids[len(some_ids) :]


def _chunk(
    session: OpenSession, start: int, fragments: list[bytes], ids_start: int, ids: list[int]
) -> ParkedWire:
    return ParkedWire(
        session.key,
        session.first_offset,
        session.last_offset,
        session.opened_at,
        session.low_t,
        session.last_t,
        session.w,
        session.last_a,
        ids,
        start,
        fragments,
        ids_start,
    )
