"""What a new owner starts from, and how it reads that back from the stream's checkpoints partition.

Pure. A checkpoint is a head (shared/model/head.py) and what the records from `checkpoint_from` to `newest` of
the partition fold to: covered keys and parked sessions. Each record carries what changed since the one
before. Now and then everything is written again, a *whole set*, over several commits if it is large.
`writer.py` decides when, `checkpoint_format.py` has the records.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice

import msgspec

from services.consumer.core.commits.checkpoint_format import (
    CheckpointRecord,
    decode_record,
    put_covered,
    size_of_covered,
    size_of_session,
)
from services.consumer.core.large_dict import LargeDict
from services.consumer.core.sessions.assembly import Assembler, ParkedFrom
from services.consumer.core.sessions.covered import CoveredKeys
from services.consumer.core.sessions.open_table import OpenTable
from services.consumer.core.sessions.remembered import forget_old
from services.consumer.core.sessions.state import Covered, OpenSession, is_droppable
from services.consumer.core.slices import Steps, sliced, sorting
from shared.errors import InvalidInput
from shared.model.group import GroupSettings
from shared.model.head import NOTHING, Head


@dataclass(slots=True, kw_only=True)
class Checkpoint:
    """What a new owner starts from: `covered` in order of offset, `parked` in order of the last fragments.

    `bytes`: size of the records that were folded into it; `whole_bytes`: about that of a whole set of it;
    `parked_bytes`: of the parked fragments; `parked_from`: first offsets and keys of the parked sessions, in
    order of the offsets. `is_start`: it is where a group starts that follows another one, and is not stored.
    """

    head: Head
    covered: LargeDict[str, Covered] = field(default_factory=LargeDict)
    parked: OpenTable = field(default_factory=OpenTable)
    bytes: int = 0
    whole_bytes: int = 0
    parked_bytes: int = 0
    parked_from: ParkedFrom = field(default_factory=deque)
    is_start: bool = False


def new_stream(first_record: int = 0) -> Checkpoint:
    """The checkpoint of a stream without a head. `first_record`: where its checkpoints partition begins.

    The partition begins above 0 only when an operator has deleted the records of an earlier life. So the
    offset is a number that no other log of the stream in this group has had.
    """
    return Checkpoint(head=Head(epoch=0, seq=0, position=0, safe_offset=0, log=first_record))


def restored(checkpoint: Checkpoint, settings: GroupSettings) -> Assembler:
    """What an owner begins to read with."""
    head = checkpoint.head
    found = Assembler(settings, position=head.safe_offset, w=head.w, a=head.a)
    found.restore(
        covered=CoveredKeys(settings.repeat_ms, checkpoint.covered),
        parked=checkpoint.parked,
        parked_from=checkpoint.parked_from,
        state_bytes=checkpoint.parked_bytes,
        position=head.position,
    )
    found.silent_to = head.silent_to
    if checkpoint.is_start:  # the first commit must store it
        found.covered.take_over(checkpoint.covered, ())
    return found


def folding_records(head: Head, records: Iterable[tuple[int, bytes]], repeat_ms: int) -> Steps[Checkpoint]:
    """The checkpoint that the records fold to; they are pairs of (offset, value), from `head.checkpoint_from`
    through `head.newest`. A slice takes one record, or some thousand entries.

    Raises InvalidInput when a record is missing or cannot be read.
    """
    checkpoint = Checkpoint(head=head)
    seen = -1
    for offset, raw in records:
        if offset > head.newest:
            break
        record = decode_record(raw)
        if seen == -1 and not (offset == head.checkpoint_from and record.begins):
            raise InvalidInput(f"no whole set begins at {offset} of the checkpoints, but {head!r}")
        _apply(checkpoint, record)
        checkpoint.bytes += len(raw)
        seen = offset
        yield
    if seen != head.newest:
        raise InvalidInput(f"checkpoint records end at {seen}, but {head!r}")
    yield from _order_covered(checkpoint, repeat_ms)
    yield from _order_parked(checkpoint)
    return checkpoint


def _order_covered(checkpoint: Checkpoint, repeat_ms: int) -> Steps[None]:
    """Drops the covered keys that nobody needs any more, and puts the others in order of offset."""
    head, kept = checkpoint.head, []
    for part in sliced(checkpoint.covered.items()):
        kept += [item for item in part if not is_droppable(item[1], head.safe_offset, head.a, repeat_ms)]
        for _, entry in part:
            forget_old(entry.ids, head.a, repeat_ms)
        yield
    checkpoint.covered = LargeDict()
    yield
    for part in sliced((yield from sorting(kept, lambda item: item[1].offset))):
        checkpoint.covered.update(part)
        checkpoint.whole_bytes += sum(size_of_covered(key, entry) for key, entry in part)
        yield


def _order_parked(checkpoint: Checkpoint) -> Steps[None]:
    """Puts the parked sessions in order of their last fragments."""
    checkpoint.parked_from = yield from listing_parked(list(checkpoint.parked.unordered()))
    sessions = yield from sorting(list(checkpoint.parked.unordered()), lambda session: session.last_offset)
    checkpoint.parked = OpenTable()
    yield
    for part in sliced(sessions):
        for session in part:
            checkpoint.parked.add(session)
            checkpoint.parked_bytes += session.bytes
            checkpoint.whole_bytes += size_of_session(session)
        yield


def listing_parked(parked: list[OpenSession]) -> Steps[ParkedFrom]:
    """First offsets and keys of these parked sessions, in order of the offsets; it empties the list."""
    found: ParkedFrom = deque()
    for part in sliced((yield from sorting(parked, lambda session: session.first_offset))):
        found.extend((session.first_offset, session.key) for session in part)
        yield
    return found


def is_settled(head: Head, stable: int, end: int) -> bool:
    """Whether the stream's checkpoints partition ends with what the head knows: its newest record, and
    Kafka's transaction marker of that commit, which takes an offset too (hence + 2). `stable`: first
    undecided offset; `end`: next offset to be written.

    Every commit writes there before it delivers, so anything that a broken commit left behind shows there.
    A head without records is of a new stream, whose partition begins with `Head.log`.
    """
    return stable == end == (head.newest + 2 if head.newest >= 0 else head.log)


def check_reaches(head: Head, end: int) -> None:
    """Raises InvalidInput if the checkpoints partition ends below the head's newest record: it was lost."""
    if head.newest >= end:
        raise InvalidInput(f"the checkpoints end at {end}, but {head!r}")


def start_following(
    start: int, log: int, covered: LargeDict[str, Covered], appended: int = NOTHING
) -> Checkpoint:
    """The checkpoint of a stream without a head, in a group that follows another one and starts there.

    `log`: the number of the stream's log; `covered`: see `core/sessions/seam.py`; `appended`: append time
    (ms) of the record before the start, -1 if unknown.
    """
    head = Head(epoch=0, seq=0, position=start, safe_offset=start, log=log, appended=appended)
    return Checkpoint(head=head, covered=covered, is_start=True)


def find_head(records: Iterable[tuple[int, bytes]]) -> Head | None:
    """The newest head that a checkpoints partition holds, for when Kafka has forgotten the committed one.

    None when no whole set was ever completed: then the stream is new.
    """
    begun = checkpoint_from = -1
    head = None
    for offset, raw in records:
        record = decode_record(raw)
        begun = offset if record.begins else begun
        checkpoint_from = begun if record.ends else checkpoint_from
        head = msgspec.structs.replace(record.head, checkpoint_from=checkpoint_from, newest=offset)
    return head if checkpoint_from >= 0 else None


def _apply(checkpoint: Checkpoint, record: CheckpointRecord) -> None:
    for wire in record.covered:
        parked = checkpoint.parked.get(wire.key)
        # the session closed after it was parked; one that begins above the offset is the key's next
        if parked is not None and parked.first_offset <= wire.offset:
            del checkpoint.parked[wire.key]
        put_covered(checkpoint.covered, wire)
    for chunk in record.parked:
        session = checkpoint.parked.get(chunk.key)
        if session is None or session.first_offset != chunk.first_offset:
            session = OpenSession(chunk.key, chunk.first_offset, chunk.opened_at, chunk.low_t, 0, 0)
            checkpoint.parked.pop(chunk.key, None)
            checkpoint.parked.add(session)
        ids = session.ids or {}
        if chunk.start > len(session.data) or chunk.ids_start > len(ids):
            raise InvalidInput(f"of the parked session of {chunk.key!r} fragments or ids are missing")
        # a whole set writes a session from its start again: what was there before is replaced, not doubled
        if chunk.ids_start < len(ids):
            ids = dict.fromkeys(islice(ids, chunk.ids_start))
        ids.update(dict.fromkeys(chunk.ids))
        session.ids = ids or None
        session.data[chunk.start :] = chunk.fragments
        session.bytes = sum(map(len, session.data))
        session.mark_parked()
        session.last_offset, session.low_t, session.last_t = chunk.last_offset, chunk.low_t, chunk.last_t
        session.w, session.last_a = chunk.w, chunk.last_a
