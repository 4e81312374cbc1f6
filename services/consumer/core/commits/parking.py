"""Chooses which open sessions a commit parks, so that neither replays nor commits grow large.

A session that stays open for long pins the safe offset, and a replay would have to start at its first
fragment. Parking moves its fragments into the checkpoint instead. Pure. `Stream` asks once a replay would be
long, and then commits after every batch until it is short again: parking takes several commits, and still
gains on reading.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile

from services.consumer.core.commits.checkpoint_format import ID_BYTES
from services.consumer.core.commits.read_marks import ReadMarks
from services.consumer.core.commits.turn import StreamLimits
from services.consumer.core.sessions.assembly import Assembler
from services.consumer.core.sessions.state import OpenSession

MAX_PARKED_BYTES = 4 * 1024 * 1024
"""The most that one commit parks: about a quarter of a second's work for one broker."""
SESSION_BYTES = 512
"""What parking a session costs beside its fragments and ids, as bytes."""
GAIN = 3
"""After a large batch, this many times its size may be parked, if that is more than `MAX_PARKED_BYTES`. So
parking gains on reading however fast data comes, and a replay that has become long grows by half of itself at
most.
"""


def sessions_to_park(
    state: Assembler, read_marks: ReadMarks, limits: StreamLimits, *, rewrites: bool
) -> list[OpenSession]:
    """What the next commit parks, once a replay would be long: of the sessions pinned before the last quarter
    of its bound, a share.
    """
    oldest = next(iter(state.pinned.values()), None)
    if oldest is None or not is_replay_long(oldest.pin, state, read_marks, limits):
        return []
    # a session that is young may end by itself soon, and parking it would have been for nothing
    keep_from = max(
        state.position - limits.max_replay_fragments // 4,
        read_marks.first_after(state.bytes_read - limits.max_replay_bytes // 4),
    )
    return choose(
        takewhile(lambda session: session.pin < keep_from, state.pinned.values()),
        read_marks.last_batch,
        rewrites=rewrites,
    )


def is_replay_long(safe_offset: int, state: Assembler, read_marks: ReadMarks, limits: StreamLimits) -> bool:
    """Whether a replay from there would pass half of one of its bounds."""
    return (
        state.position - safe_offset > limits.max_replay_fragments // 2
        or state.bytes_read - read_marks.bytes_at(safe_offset) > limits.max_replay_bytes // 2
    )


def choose(pinning: Iterable[OpenSession], last_batch: int, *, rewrites: bool) -> list[OpenSession]:
    """The sessions that the next commit parks: the first of `pinning`, which are in order of their pins, and
    always at least one. It looks at one session more than it chooses.

    `last_batch`: bytes of the batch that was read last; `rewrites`: whether the commit writes again what was
    parked before, because it is part of a whole set.
    """
    room = max(MAX_PARKED_BYTES, GAIN * last_batch)
    chosen: list[OpenSession] = []
    for session in pinning:
        room -= size_of(session, rewrites=rewrites)
        if chosen and room < 0:
            break
        chosen.append(session)
    return chosen


def size_of(session: OpenSession, *, rewrites: bool) -> int:
    """About how much parking the session costs, as bytes: fragments and ids that are not parked yet, or all,
    and the work for the session itself.
    """
    ids = len(session.ids or ())
    if rewrites:
        return session.bytes + ID_BYTES * ids + SESSION_BYTES
    fragments = sum(map(len, session.data[session.parked :]))
    return fragments + ID_BYTES * (ids - session.parked_ids) + SESSION_BYTES
