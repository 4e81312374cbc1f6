"""Which open sessions one commit parks, so that neither replays nor commits grow large.

Pure. `Stream` asks once a replay would be long, with the sessions that pin its beginning, and commits after
every batch until it is short again: then parking takes several commits, and still gains on reading.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from services.consumer.core.sessions.state import OpenSession

MAX_PARKED_BYTES = 4 * 1024 * 1024
"""What one commit parks at most: about a quarter of a second's work for one broker."""
GAIN = 3
"""When a batch brings more than a third of `MAX_PARKED_BYTES`, so many times as much may be parked after it.
A replay that has become long then grows by half of itself at most, because no more is parked than was read.
"""


def choose(pinning: Iterable[OpenSession], last_batch: int, *, rewrites: bool) -> list[OpenSession]:
    """Those of the sessions that the next commit parks: oldest pins first, and always at least one.

    `last_batch`: bytes that were read last; `rewrites`: whether what was parked before is written once more.
    """
    room = max(MAX_PARKED_BYTES, GAIN * last_batch)
    chosen: list[OpenSession] = []
    for session in sorted(pinning, key=lambda session: session.pin):
        room -= size_of(session, rewrites=rewrites)
        if chosen and room < 0:
            break
        chosen.append(session)
    return chosen


def size_of(session: OpenSession, *, rewrites: bool) -> int:
    """Bytes that parking the session writes, nearly: fragments not parked yet (or all), and all its ids."""
    fragments = session.bytes if rewrites else sum(map(len, session.data[session.parked :]))
    return fragments + 9 * len(session.ids or ())


def bytes_at(offset: int, read_at: Sequence[tuple[int, int]]) -> int:
    """Bytes that had been read when the position was at or just below `offset`.

    `read_at`: pairs of a position and the bytes read there, ascending, at least one; above all of them the
    last one's bytes, below all of them the first one's.
    """
    found = read_at[0][1]
    for position, read in read_at:
        if position > offset:
            break
        found = read
    return found
