"""What a donor sends when a stream changes owner: its open sessions, its covered keys, what they stand on.

Pure. A *copy* holds all sessions as of a position, while the donor still runs. A *delta* holds what has
changed since that copy, the head that the donor stopped on, and what else a `Stream` needs. A *whole* bundle
is a delta without a copy. `received.py` makes a stream of them again. The format is MessagePack
(`bundle_format.py`), in which a fragment's bytes travel unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass

from services.consumer.core import slices
from services.consumer.core.commits.checkpoint_format import covered_wire
from services.consumer.core.commits.stream import Stream
from services.consumer.core.handover.bundle_format import (
    BundleWire,
    ClosedWire,
    CopyWriter,
    SessionWire,
    TailWire,
    digesting,
    encode_bundle,
    session_wire,
)
from services.consumer.core.sessions.state import OpenSession
from services.consumer.core.slices import Steps, at_once, sliced, sorting
from shared.errors import InvariantBroken
from shared.model.head import Head

UNKNOWN = (-1, 0, 0, 0)
"""The recipient has nothing of the session: no session begins at offset -1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentCopy:
    """What a donor remembers of a copy that it sent: which `stream`, and after which commit (`head`).

    `known` holds what the recipient has of each key's session: its first offset, the number of fragments, of
    ids, and of parked fragments. Plain tuples: the garbage collector skips those that hold only numbers.
    """

    stream: Stream
    head: Head
    position: int
    digest: str
    known: dict[str, tuple[int, int, int, int]]


def take_copy(stream: Stream) -> tuple[bytes, SentCopy]:
    """All open sessions and covered keys as of now, encoded; the stream may continue afterwards."""
    return at_once(copying(stream))


def copying(stream: Stream) -> Steps[tuple[bytes, SentCopy]]:
    """What `take_copy` returns, in slices between which the stream may continue.

    The copy's position is that of the first slice. Each entry is as of its own slice, and `known` says what
    the recipient has of it. All that changes after the first slice lies at the position or above, or is
    parked by a later commit, so the delta corrects it like any other change since the copy.
    """
    state = stream.assembler
    head, writer, known = stream.head, CopyWriter(state.position), dict[str, tuple[int, int, int, int]]()
    # of the plain dict below: to list an OrderedDict in its own order is one step of 70 ms for 400,000 keys
    position, keys, covered = state.position, list(dict.keys(state.open)), list(state.covered.entries)
    yield
    found = []
    for part in sliced(keys):
        found += [session for key in part if (session := state.open.get(key)) is not None]
        yield
    pause_at = slices.SLICE_BYTES
    for number, sorted_one in enumerate((yield from sorting(found, lambda one: one.last_offset)), start=1):
        key = sorted_one.key
        if (session := state.open.get(key)) is not None:
            known[key] = _mark(session)
            size = writer.add_session(session_wire(session, 0, 0))
            if size >= pause_at or number % slices.SLICE == 0:
                pause_at = size + slices.SLICE_BYTES
                yield
    for part in sliced(covered):
        for key in part:
            if (entry := state.covered.entries.get(key)) is not None:
                writer.add_covered(covered_wire(key, entry))
        yield
    body = writer.finish()
    digest = yield from digesting(body)
    return body, SentCopy(stream=stream, head=head, position=position, digest=digest, known=known)


def take_delta(stream: Stream, base: SentCopy | None) -> bytes:
    """What has changed since `base` (None: everything), including what is not committed yet.

    Raises InvariantBroken if the copy is of another `Stream`: a reopened one may be at a lower position.
    """
    if base is not None and base.stream is not stream:
        raise InvariantBroken(f"the copy is not of this stream: {stream!r}")
    state = stream.assembler
    from_position = base.position if base is not None else 0
    sessions, closed = _changed_sessions(stream, base)
    # silence covers keys up to the offset before the position, so changes since the copy start one below it
    covered = []
    for key, entry in reversed(state.covered.entries.items()):
        if entry.offset < from_position - 1:
            break
        covered.append(covered_wire(key, entry))
    covered.reverse()
    tail = TailWire(
        stream.head,
        state.w,
        state.a,
        stream.counts,
        [
            ClosedWire(session_wire(closed.session, 0, 0), closed.reason, closed.closed_at)
            for closed in stream.pending
        ],
        list(state.covered.changed),
        sorted(state.covered.unparked),
        stream.writer.written,
        stream.writer.last_whole,
        state.bytes_read,
        stream.read_marks.points(),
        stream.last_record.appended_before(state.position),
    )
    return encode_bundle(
        BundleWire(position=state.position, sessions=sessions, covered=covered, closed=closed, tail=tail)
    )


def _changed_sessions(stream: Stream, base: SentCopy | None) -> tuple[list[SessionWire], list[str]]:
    """What the recipient lacks of open sessions, and the keys of sessions that have closed since the copy.

    The sessions are in the order of their last fragments. The stream stands still meanwhile, so this looks
    only at those that have changed.
    """
    opened = stream.assembler.open
    if base is None:
        return [session_wire(session, 0, 0) for session in opened.values()], []
    # Sessions are ordered by their last fragments, so those that changed come last. Only a commit can change
    # another one, by parking its fragments.
    has_parked = stream.head != base.head
    sessions, anew = [], []
    for key, session in reversed(opened.items()):
        is_recent = session.last_offset >= base.position
        if not (is_recent or has_parked):
            break
        first_offset, fragments, ids, parked = base.known.get(key, UNKNOWN)
        # unknown, or its key has closed and opened again since the copy: send the new session whole
        if first_offset != session.first_offset:
            sessions.append(session_wire(session, 0, 0))
            anew.append(key)
        elif is_recent or parked != session.parked:
            sessions.append(session_wire(session, fragments, ids))
    sessions.reverse()
    # & binds tighter than |: sessions that are gone, and those whose key has a new session
    closed = base.known.keys() - opened.keys() | base.known.keys() & anew
    return sessions, sorted(closed)


def _mark(session: OpenSession) -> tuple[int, int, int, int]:
    """What the recipient has of the session, in the order of `SentCopy.known`."""
    return session.first_offset, len(session.data), len(session.ids or ()), session.parked
