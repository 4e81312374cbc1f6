"""What a recipient makes of a handover: the copy that it holds, and the stream that the delta completes.

Pure. The result is a `Stream` as if the recipient had folded the log itself. It checks that what
arrives can be the state of a stream at all, and that it fits its head. The head in Kafka decides whether the
stream may be used (`rules.is_valid`). `handover/hints.py` holds the copies.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from services.consumer.core.commits.checkpoint import Checkpoint, listing_parked
from services.consumer.core.commits.checkpoint_format import put_covered
from services.consumer.core.commits.stream import Stream
from services.consumer.core.commits.turn import StreamLimits
from services.consumer.core.handover.bundle_format import (
    BundleReader,
    ClosedWire,
    SessionWire,
    TailWire,
)
from services.consumer.core.large_dict import LargeDict
from services.consumer.core.sessions.assembly import ParkedFrom
from services.consumer.core.sessions.covered import CoveredKeys
from services.consumer.core.sessions.open_table import OpenTable
from services.consumer.core.sessions.state import Closed, Covered, OpenSession
from services.consumer.core.slices import Steps, sliced, sorting
from shared.errors import BundleRejected
from shared.model.group import GroupSettings
from shared.model.head import Head


@dataclass(slots=True, kw_only=True)
class Copy:
    """A copy as the recipient holds it until the delta arrives.

    It is already decoded: the stream stands still during the delta, which then costs only what has changed.

    `sessions` are ordered by their last fragments, `pinned` (those that pin the safe offset) by their pins,
    `covered` by offset, as the donor's are; `bytes`: of the sessions' fragments. `parked_from`: first offsets
    and keys of the parked ones, once it is complete.
    """

    position: int = 0
    digest: str = ""
    sessions: OpenTable = field(default_factory=OpenTable)
    pinned: dict[str, OpenSession] = field(default_factory=dict)
    covered: LargeDict[str, Covered] = field(default_factory=LargeDict)
    bytes: int = 0
    parked_from: ParkedFrom = field(default_factory=deque)


def opening_copy(body: bytes, digest: str) -> Steps[Copy]:
    """The copy that a body holds. Raises BundleRejected if it is unreadable."""
    reader = BundleReader(body)
    if reader.wire.tail is not None:
        raise BundleRejected("a first copy has no head")
    yield
    copy = Copy(digest=digest)
    yield from _applying(copy, reader)
    return copy


def completing(
    copy: Copy | None,
    body: bytes,
    *,
    group: str,
    stream: int,
    settings: GroupSettings,
    limits: StreamLimits,
    now_s: float,
) -> Steps[Stream]:
    """The stream that a copy and its delta make (None: a whole bundle). It uses up the copy.

    Raises BundleRejected if the delta is unreadable or does not fit.
    """
    reader = BundleReader(body)
    wire, tail = reader.wire, reader.wire.tail
    if tail is None or tail.head.position > wire.position:
        raise BundleRejected("a delta needs a head, at its position or below")
    copy = copy or Copy()
    if wire.position < copy.position:
        raise BundleRejected(f"the delta ends at {wire.position}, below its copy")
    yield
    yield from _applying(copy, reader)
    head = tail.head
    # the last chance to reject: once the stream runs, its commits become the truth
    if not (yield from _standing_on(copy, head)) or not tail.read_at or tail.read_at != sorted(tail.read_at):
        raise BundleRejected(f"the bundle does not fit its head: {head!r}")
    copy.parked_from = yield from listing_parked((yield from _parked(copy)))
    if not copy.covered.keys() >= {*tail.changed, *tail.unparked}:
        raise BundleRejected("keys that were covered since its head are missing")
    found = Stream(
        group=group,
        stream=stream,
        epoch=head.epoch,
        settings=settings,
        limits=limits,
        checkpoint=Checkpoint(head=head, bytes=tail.written),
        now_s=now_s,
    )
    _fill(found, copy, tail)
    return found


def _fill(found: Stream, copy: Copy, tail: TailWire) -> None:
    """Gives a stream that stands on the tail's head everything that the donor has folded but not
    committed."""
    head = tail.head
    covered = CoveredKeys(found.settings.repeat_ms, copy.covered)
    covered.take_over(tail.changed, tail.unparked)
    # the copy may hold keys that the donor has dropped since
    covered.forget(head.safe_offset, head.a, keep=frozenset(tail.changed))
    found.assembler.adopt(
        parked_from=copy.parked_from,
        position=copy.position,
        w=tail.w,
        a=tail.a,
        sessions=copy.sessions,
        pinned=copy.pinned,
        covered=covered,
        state_bytes=copy.bytes,
        bytes_read=tail.bytes_read,
    )
    found.take_over(
        counts=tail.counts,
        pending=[_closed(sent) for sent in tail.pending],
        read_at=tail.read_at,
        appended=tail.appended,
        closing=tail.closing,
    )
    found.writer.last_whole = tail.last_whole


def _applying(copy: Copy, reader: BundleReader) -> Steps[None]:
    """Updates the copy; checks what is sent, but not what the copy held before."""
    copied_to, copy.position = copy.position, reader.wire.position
    # closed keys first: the same key may have a new session in this very delta
    for keys in sliced(reader.wire.closed):
        for key in keys:
            if (gone := copy.sessions.pop(key, None)) is not None:
                copy.bytes -= gone.bytes
                copy.pinned.pop(key, None)
        yield
    repinned: list[OpenSession] = []
    for sessions in reader.sessions():
        repinned += _update_sessions(copy, sessions, copied_to)
        yield
    yield from _pinning(copy, repinned)
    for entries in reader.covered():
        for entry in entries:
            put_covered(copy.covered, entry)
        yield


def _update_sessions(copy: Copy, sessions: Iterable[SessionWire], copied_to: int) -> list[OpenSession]:
    """Adds and extends sessions; returns those that must be added to the pinned ones, in order of their pins.

    `copied_to`: the position of the copy before.
    """
    repinned = []
    for sent in sessions:
        session = copy.sessions.get(sent.key)
        if session is None:
            copy.sessions.add(session := _new_session(sent))
        elif sent.last_offset >= copied_to:  # one that was only parked keeps its place in the order
            copy.sessions.move_to_end(sent.key)
        pin = copy.pinned[sent.key].pin if sent.key in copy.pinned else -1
        copy.bytes += _extend(session, sent)
        if session.pin != pin or session.pin >= copied_to:
            copy.pinned.pop(sent.key, None)  # its place among the pins changes, so `_pin` adds it again
            repinned += [session] if session.pin >= 0 else []
    return repinned


def _pinning(copy: Copy, sessions: list[OpenSession]) -> Steps[None]:
    """Adds sessions that pin the safe offset anew, in order of their pins: all of them follow the others,
    because a pin is the offset of a record that was read after them.
    """
    last = next(reversed(copy.pinned.values()), None)
    for part in sliced((yield from sorting(sessions, lambda session: session.pin))):
        if last is not None and part[0].pin < last.pin:
            raise BundleRejected(f"the session of {part[0].key!r} pins an offset that was read before")
        for session in part:
            copy.pinned[session.key] = session
        yield


def _new_session(sent: SessionWire) -> OpenSession:
    return OpenSession(sent.key, sent.first_offset, sent.opened_at, sent.low_t, 0, 0)


def _closed(sent: ClosedWire) -> Closed:
    session = _new_session(sent.session)
    _extend(session, sent.session)
    return Closed(session=session, reason=sent.reason, closed_at=sent.closed_at)


def _extend(session: OpenSession, sent: SessionWire) -> int:
    """Updates a session; returns by how many bytes it has grown. Raises BundleRejected."""
    if sent.data_from != len(session.data) or sent.ids_from != len(session.ids or ()):
        raise BundleRejected(f"the session of {sent.key!r} is incomplete")
    size = sum(map(len, sent.data))
    session.data += sent.data
    session.bytes += size
    for hashed in sent.ids:
        session.remember(hashed)
    session.last_offset, session.low_t, session.last_t = sent.last_offset, sent.low_t, sent.last_t
    session.w, session.last_a, session.parked = sent.w, sent.last_a, sent.parked
    session.parked_ids = sent.parked_ids
    session.pin, session.pin_w, session.pin_a = sent.pin, sent.pin_w, sent.pin_a
    if session.first_offset != sent.first_offset or not _is_sound(session):
        raise BundleRejected(f"the session of {sent.key!r} is impossible: {session!r}")
    return size


def _is_sound(session: OpenSession) -> bool:
    """Whether a fold can have made this session."""
    return (
        0 <= session.first_offset <= session.last_offset
        and session.low_t <= session.last_t
        and 0 <= session.parked <= len(session.data) > 0
        # a session needs the log exactly as long as part of it is not parked
        and (session.pin < 0) == (session.parked == len(session.data))
    )


def _parked(copy: Copy) -> Steps[list[OpenSession]]:
    found: list[OpenSession] = []
    for part in sliced(copy.sessions.unordered()):
        found += [session for session in part if session.parked]
        yield
    return found


def _standing_on(copy: Copy, head: Head) -> Steps[bool]:
    """Whether these can be the sessions and covered keys of a stream whose last commit has this head."""
    if not 0 <= head.safe_offset <= head.position:
        return False
    before = -1
    for part in sliced(copy.sessions.values()):
        for session in part:
            if session.last_offset <= before or 0 <= session.pin < head.safe_offset:
                return False
            before = session.last_offset
        yield
    # above the position lies only what stands in sessions of a followed group, and its key has none open
    last = next(reversed(copy.covered.items()), None)
    is_below = last is None or last[1].offset < copy.position or last[0] not in copy.sessions
    return before < copy.position and is_below
