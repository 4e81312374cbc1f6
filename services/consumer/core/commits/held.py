"""What an owned stream holds, for people who look: a key's open session, the oldest and the heaviest ones.

Pure, and without a trace in the stream. `member/held_routes.py` answers control with it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from heapq import nlargest, nsmallest
from operator import attrgetter

from services.consumer.core.commits.stream import Stream
from services.consumer.core.sessions.state import OpenSession
from services.consumer.core.slices import Steps, sliced
from shared.model.group import GroupSettings
from shared.model.open_sessions import (
    MOST_FRAGMENT_BYTES,
    MOST_FRAGMENTS,
    SHOWN,
    HeldKey,
    HeldStream,
    OpenSessionRow,
    Unreadable,
)

_offset, _bytes = attrgetter("first_offset"), attrgetter("bytes")


def held_key(stream: Stream, key: str) -> HeldKey:
    """What the stream holds of the key."""
    state = stream.assembler
    session = state.open.get(key)
    return HeldKey(
        stream=stream.stream,
        epoch=stream.epoch,
        position=state.position,
        w=state.w,
        a=state.a,
        open=None if session is None else row_of(session, stream.settings),
        data=[] if session is None else [raw.decode() for raw in newest_of(session.data)],
    )


def looking_over(stream: Stream) -> Steps[HeldStream]:
    """What the stream holds, in slices between which it may continue."""
    state = stream.assembler
    everything = list(state.open.unordered())  # all at once: between slices, sessions come and go
    yield
    oldest: list[OpenSession] = []
    heaviest: list[OpenSession] = []
    for part in sliced(everything):
        # few of a slice can change the ten, and only those are sorted
        before, above = _bounds(oldest, heaviest)
        oldest = nsmallest(SHOWN, [*oldest, *(one for one in part if one.first_offset < before)], key=_offset)
        heaviest = nlargest(SHOWN, [*heaviest, *(one for one in part if one.bytes > above)], key=_bytes)
        yield

    def rows(sessions: Sequence[OpenSession]) -> list[OpenSessionRow]:
        # some may have ended since
        return [row_of(one, stream.settings) for one in sessions if state.open.get(one.key) is one]

    unreadable = stream.last_unreadable
    return HeldStream(
        stream=stream.stream,
        epoch=stream.epoch,
        position=state.position,
        w=state.w,
        a=state.a,
        open_sessions=stream.open_sessions,
        oldest=rows(oldest),
        heaviest=rows(heaviest),
        last_unreadable=Unreadable(offset=unreadable[0], why=unreadable[1]) if unreadable else None,
    )


def _bounds(oldest: Sequence[OpenSession], heaviest: Sequence[OpenSession]) -> tuple[float, float]:
    """Below which first offset, and above which size, a session belongs to the ten."""
    if len(oldest) < SHOWN:
        return math.inf, -math.inf
    return oldest[-1].first_offset, heaviest[-1].bytes


def row_of(session: OpenSession, settings: GroupSettings) -> OpenSessionRow:
    """The session as it is reported. Silence ends it as rule 3 of `fold.py` says."""
    return OpenSessionRow(
        key=session.key,
        first_offset=session.first_offset,
        last_offset=session.last_offset,
        first_time=session.low_t,
        last_time=session.last_t,
        opened_at=session.opened_at,
        last_at=session.last_a,
        fragments=len(session.data),
        bytes=session.bytes,
        parked=session.parked > 0,
        silent_after=session.w + settings.gap_ms + settings.lateness_ms,
        idle_after=session.last_a + settings.idle_ms,
    )


def newest_of(data: Sequence[bytes]) -> list[bytes]:
    """The last fragments that an answer has room for, in their order.

    >>> newest_of([b"a", b"b"])
    [b'a', b'b']
    """
    room, chosen = MOST_FRAGMENT_BYTES, list[bytes]()
    for raw in reversed(data[-MOST_FRAGMENTS:]):
        room -= len(raw)
        if chosen and room < 0:
            break
        chosen.append(raw)
    return chosen[::-1]
