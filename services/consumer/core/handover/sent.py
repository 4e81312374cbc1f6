"""What a donor sends when a stream changes owner: its open sessions, its covered keys, what they stand on.

Pure. A *copy* holds all sessions as of a position, while the donor still runs. A *delta* holds what has
changed since that copy, the head that the donor stopped on, and what else a `Stream` needs. A *whole* bundle
is a delta without a copy. `received.py` makes a stream of them again. The format is MessagePack
(`bundle_format.py`), in which a fragment's bytes travel unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from services.consumer.core import slices
from services.consumer.core.commits.checkpoint_format import covered_wire
from services.consumer.core.commits.stream import Stream
from services.consumer.core.handover.bundle_format import (
    BundleWriter,
    ClosedWire,
    SessionWire,
    TailWire,
    digesting,
    session_wire,
)
from services.consumer.core.large_dict import LargeDict
from services.consumer.core.sessions.state import Covered, OpenSession
from services.consumer.core.slices import Steps, sliced, sorting
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
    known: LargeDict[str, tuple[int, int, int, int]]


def copying(stream: Stream) -> Steps[tuple[bytes, SentCopy]]:
    """All open sessions and covered keys, encoded, in slices between which the stream may continue.

    The copy's position is that of the first slice. Each entry is as of its own slice, and `known` says what
    the recipient has of it. All that changes after the first slice lies at the position or above, or is
    parked by a later commit, so the delta corrects it like any other change since the copy.
    """
    state = stream.assembler
    position, head, writer = state.position, stream.head, BundleWriter(state.position)
    known = LargeDict[str, tuple[int, int, int, int]]()
    keys = list(state.open.unordered_keys())  # all at once: between slices, a session may change its place
    yield
    found = []
    for part in sliced(keys):
        found += [session for key in part if (session := state.open.get(key)) is not None]
        yield
    keys.clear()
    in_order = yield from sorting(found, lambda session: session.last_offset)

    def to_send() -> Iterator[SessionWire | None]:
        for one in in_order:
            if (session := state.open.get(one.key)) is not None:
                known[one.key] = _mark(session)
                yield session_wire(session, 0, 0)
            else:
                yield None

    yield from _adding_sessions(writer, to_send())
    covered = list(state.covered.entries)
    yield
    yield from _adding_covered(
        writer, ((key, entry) for key in covered if (entry := state.covered.entries.get(key)) is not None)
    )
    body = writer.finish()
    yield
    digest = yield from digesting(body)
    return body, SentCopy(stream=stream, head=head, position=position, digest=digest, known=known)


def taking_delta(stream: Stream, base: SentCopy | None) -> Steps[bytes]:
    """What has changed since `base` (None: everything), including what is not committed yet.

    The stream must not change between the slices. Raises InvariantBroken if the copy is of another `Stream`:
    a reopened one may be at a lower position.
    """
    if base is not None and base.stream is not stream:
        raise InvariantBroken(f"the copy is not of this stream: {stream!r}")
    state, writer = stream.assembler, BundleWriter(stream.assembler.position)
    if base is None:
        closed: list[str] = []
        yield from _adding_sessions(writer, (session_wire(one, 0, 0) for one in state.open.values()))
    else:
        changed, anew = yield from _changed_since(stream, base)
        yield from _adding_sessions(writer, (session_wire(*one) for one in reversed(changed)))
        closed = yield from _closed_since(stream, base, anew)
    # silence covers keys up to the offset before the position, so changes since the copy start one below it
    since = base.position - 1 if base is not None else -1
    covered: list[tuple[str, Covered]] = []
    for part in sliced(reversed(state.covered.entries.items())):
        newer = [item for item in part if item[1].offset >= since]
        covered += newer
        if len(newer) < len(part):
            break
        yield
    yield from _adding_covered(writer, reversed(covered))
    return writer.finish(closed, _tail(stream))


def _tail(stream: Stream) -> TailWire:
    state = stream.assembler
    return TailWire(
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
        stream.last_record.closing_behind(state.position),
    )


def _changed_since(
    stream: Stream, base: SentCopy
) -> Steps[tuple[list[tuple[OpenSession, int, int]], set[str]]]:
    """What the recipient lacks of open sessions, the newest first: each with the numbers of the first
    fragment and id to send. Also the keys of those sessions that are not in the copy.
    """
    # Sessions are ordered by their last fragments, so those that changed come last. Only a commit can change
    # another one, by parking its fragments.
    has_parked = stream.head != base.head
    changed: list[tuple[OpenSession, int, int]] = []
    anew: set[str] = set()
    for part in sliced(reversed(stream.assembler.open.values())):
        for session in part:
            key = session.key
            is_recent = session.last_offset >= base.position
            if not (is_recent or has_parked):
                return changed, anew
            first_offset, fragments, ids, parked = base.known.get(key, UNKNOWN)
            # unknown, or its key has closed and opened again since the copy: send the new session whole
            if first_offset != session.first_offset:
                changed.append((session, 0, 0))
                anew.add(key)
            elif is_recent or parked != session.parked:
                changed.append((session, fragments, ids))
        yield
    return changed, anew


def _closed_since(stream: Stream, base: SentCopy, anew: set[str]) -> Steps[list[str]]:
    """The keys of the copy whose session has closed since, perhaps for a new one."""
    opened, closed = stream.assembler.open, []
    for part in sliced(base.known):
        closed += [key for key in part if key not in opened or key in anew]
        yield
    return closed


def _adding_sessions(writer: BundleWriter, sessions: Iterable[SessionWire | None]) -> Steps[None]:
    """Encodes sessions in parts of bounded length and size; a None is one that has gone."""
    pause_at = writer.size + slices.SLICE_BYTES
    for number, sent in enumerate(sessions, start=1):
        if sent is not None:
            writer.add_session(sent)
        if writer.size >= pause_at or number % slices.SLICE == 0:
            pause_at = writer.size + slices.SLICE_BYTES
            writer.end_part()
            yield


def _adding_covered(writer: BundleWriter, entries: Iterable[tuple[str, Covered]]) -> Steps[None]:
    for part in sliced(entries):
        for key, entry in part:
            writer.add_covered(covered_wire(key, entry))
        writer.end_part()
        yield


def _mark(session: OpenSession) -> tuple[int, int, int, int]:
    """What the recipient has of the session, in the order of `SentCopy.known`."""
    return session.first_offset, len(session.data), len(session.ids or ()), session.parked
