"""What an owned stream holds, for people who look: a key's open session, the oldest and the heaviest ones.

Pure, and without a trace in the stream. `member/lookup.py` answers control with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nlargest, nsmallest

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
    keys = list(state.open.keys())  # all at once: between slices, a session may change its place
    yield
    oldest: list[OpenSession] = []
    heaviest: list[OpenSession] = []
    for part in sliced(keys):
        found = [session for key in part if (session := state.open.get(key)) is not None]
        oldest = nsmallest(SHOWN, [*oldest, *found], key=lambda session: session.first_offset)
        heaviest = nlargest(SHOWN, [*heaviest, *found], key=lambda session: session.bytes)
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
