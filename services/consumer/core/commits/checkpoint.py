"""What a commit writes beside the sessions, and how a new owner reads it back.

Pure. A checkpoint is a head (shared/model/head.py) and what the records from `checkpoint_from` to `newest` of
the stream's checkpoints partition fold to: covered keys and parked sessions. Each record carries what changed
since the one before. Now and then everything is written again, a *whole set*, over several commits if it is
large. An entry of a whole set is the entry as of its commit, so later changes simply overwrite it, and a
whole set that was never finished is nothing but repeated changes.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

import msgspec

from services.consumer.core.sessions.remembered import NO_IDS, forget_old, newest_a, remember
from services.consumer.core.sessions.state import Covered, OpenSession, is_droppable
from services.consumer.core.slices import Steps, at_once, sliced, sorting
from shared.errors import InvalidInput, InvariantBroken
from shared.model.head import NOTHING, Head

ID_BYTES = 9
AGE_BYTES = 7
FRAGMENT_BYTES = 5
"""The most that MessagePack adds to an id's hash, an age that no other id has, and a fragment's length."""


class CoveredWire(msgspec.Struct, frozen=True, array_like=True):
    """A covered key as it is stored, with the newest of its ids or all of them, oldest first.

    `last_a`: A at the last fragment of the newest id's session. `ages`: pairs of (how many ms less than
    `last_a`, for how many ids), in the order of `ids`; without a pair an id is not older. `adds`: the ids are
    added to those that the records before have of the key, instead of replacing them.
    """

    key: str
    offset: int
    last_a: int
    ids: list[int] = []
    ages: list[tuple[int, int]] = []
    adds: bool = False


class ParkedWire(msgspec.Struct, frozen=True, array_like=True):
    """A parked session as it is stored: its fold state, and some of its fragments and ids, from the numbers
    `start` and `ids_start` on. One that is too large for a record is stored as several, in order.
    """

    key: str
    first_offset: int
    last_offset: int
    opened_at: int
    low_t: int
    last_t: int
    w: int
    last_a: int
    ids: list[int]
    start: int
    fragments: list[bytes]
    ids_start: int = 0


class CheckpointRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One record of the checkpoints topic (MessagePack).

    `head`: the head of its commit, without the two offsets of checkpoint records, which only the broker
    knows. A whole set begins with the record that says `begins` and is complete with the one that says
    `ends`.
    """

    head: Head
    begins: bool = False
    ends: bool = False
    covered: list[CoveredWire] = []
    parked: list[ParkedWire] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """What one transaction writes, in this order: sessions, checkpoint records, the head.

    `sessions`: pairs of a record's key and value, encoded as they are read. `begins`: number of the record
    that begins a whole set; `ends`: whether the last record completes one; `begun_at`: offset where an
    earlier commit began it.
    """

    head: Head
    sessions: Sequence[tuple[bytes, bytes]] = ()
    records: Sequence[bytes] = ()
    begins: int | None = None
    ends: bool = False
    begun_at: int = -1

    def head_at(self, offsets: Sequence[int]) -> Head:
        """The head to commit, now that the broker has assigned `offsets` to the records."""
        if len(offsets) != len(self.records):
            raise InvariantBroken(f"{len(self.records)} checkpoint records, but {len(offsets)} offsets")
        checkpoint_from = self.head.checkpoint_from
        if self.ends:
            checkpoint_from = self.whole_begun_at(offsets)
        return msgspec.structs.replace(
            self.head, checkpoint_from=checkpoint_from, newest=offsets[-1] if offsets else self.head.newest
        )

    def whole_begun_at(self, offsets: Sequence[int]) -> int:
        """Offset at which the whole set under way began, -1 when there is none."""
        return self.begun_at if self.begins is None else offsets[self.begins]


@dataclass(slots=True, kw_only=True)
class Checkpoint:
    """What a new owner starts from: `covered` in order of offset, `parked` in order of the last fragments.

    `bytes`: size of the records that were folded into it; `whole_bytes`: about that of a whole set of it;
    `parked_bytes`: of the parked fragments.
    """

    head: Head
    covered: dict[str, Covered] = field(default_factory=dict)
    parked: OrderedDict[str, OpenSession] = field(default_factory=OrderedDict)
    bytes: int = 0
    whole_bytes: int = 0
    parked_bytes: int = 0


def new_stream(first_record: int = 0) -> Checkpoint:
    """The checkpoint of a stream without a head. `first_record`: where its checkpoints partition begins.

    The partition begins above 0 only when an operator has deleted the records of an earlier life. So the
    offset is a number that no other log of the stream in this group has had.
    """
    return Checkpoint(head=Head(epoch=0, seq=0, position=0, safe_offset=0, log=first_record))


def fold(head: Head, records: Iterable[tuple[int, bytes]], repeat_ms: int) -> Checkpoint:
    """The checkpoint that the records fold to; they are pairs of (offset, value), from `head.checkpoint_from`
    through `head.newest`.

    Raises InvalidInput when a record is missing or cannot be read.
    """
    return at_once(folding(head, records, repeat_ms))


def folding(head: Head, records: Iterable[tuple[int, bytes]], repeat_ms: int) -> Steps[Checkpoint]:
    """What `fold` returns, in slices of one record or some thousand entries."""
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
    checkpoint.covered = {}
    for part in sliced((yield from sorting(kept, lambda item: item[1].offset))):
        checkpoint.covered.update(part)
        checkpoint.whole_bytes += sum(size_of_covered(key, entry) for key, entry in part)
        yield


def _order_parked(checkpoint: Checkpoint) -> Steps[None]:
    """Puts the parked sessions in order of their last fragments."""
    sessions = yield from sorting(list(dict.values(checkpoint.parked)), lambda session: session.last_offset)
    checkpoint.parked = OrderedDict()
    for part in sliced(sessions):
        for session in part:
            checkpoint.parked[session.key] = session
            checkpoint.parked_bytes += session.bytes
            checkpoint.whole_bytes += size_of_session(session)
        yield


def is_settled(head: Head, stable: int, end: int) -> bool:
    """Whether the stream's checkpoints partition ends with what the head knows: its newest record, and the
    broker's marker of that commit. `stable`: first undecided offset; `end`: next offset to be written.

    Every commit writes there before it delivers, so anything that a broken commit left behind shows there.
    A head without records is of a new stream, whose partition begins with `Head.log`.
    """
    return stable == end == (head.newest + 2 if head.newest >= 0 else head.log)


def check_reaches(head: Head, end: int) -> None:
    """Raises InvalidInput if the checkpoints partition ends below the head's newest record: it was lost."""
    if head.newest >= end:
        raise InvalidInput(f"the checkpoints end at {end}, but {head!r}")


def decode_record(raw: bytes) -> CheckpointRecord:
    """The checkpoint record in these bytes. Raises InvalidInput when they hold none."""
    try:
        return _decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"a checkpoint record cannot be read: {error}") from None


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
        if parked is not None and parked.first_offset <= wire.offset:
            del checkpoint.parked[wire.key]
        put_covered(checkpoint.covered, wire)
    for chunk in record.parked:
        session = checkpoint.parked.get(chunk.key)
        if session is None or session.first_offset != chunk.first_offset:
            session = OpenSession(chunk.key, chunk.first_offset, chunk.opened_at, chunk.low_t, 0, 0)
            checkpoint.parked[chunk.key] = session
        ids = session.ids or {}
        if chunk.start > len(session.data) or chunk.ids_start > len(ids):
            raise InvalidInput(f"of the parked session of {chunk.key!r} fragments or ids are missing")
        if chunk.ids_start < len(ids):
            ids = dict.fromkeys(islice(ids, chunk.ids_start))
        ids.update(dict.fromkeys(chunk.ids))
        session.ids = ids or None
        session.data[chunk.start :] = chunk.fragments
        session.bytes = sum(map(len, session.data))
        session.mark_parked()
        session.last_offset, session.low_t, session.last_t = chunk.last_offset, chunk.low_t, chunk.last_t
        session.w, session.last_a = chunk.w, chunk.last_a


def covered_wire(key: str, entry: Covered, new_ids: int | None = None) -> CoveredWire:
    """A covered key as it is stored, and as it travels: with its newest `new_ids` ids (None: with all)."""
    ids = entry.ids
    if not ids:
        return CoveredWire(key, entry.offset, NOTHING)
    count = len(ids) if new_ids is None else min(new_ids, len(ids))
    newest = newest_a(ids)
    sent = list(islice(reversed(ids), count))[::-1]
    # `last_a` never falls from one id to the next, so equal ones stand together
    ages: list[tuple[int, int]] = []
    if sent and ids[sent[0]] != newest:
        ages = [(newest - last_a, n) for last_a, n in Counter(map(ids.__getitem__, sent)).items()]
    return CoveredWire(
        key,
        entry.offset,
        newest,
        sent,
        ages,
        count < len(ids),
    )


def put_covered(covered: dict[str, Covered], wire: CoveredWire) -> None:
    """Adds a stored key as the newest of `covered`, which are in order of offset."""
    entry = covered.pop(wire.key, None)
    ids = entry.ids if entry is not None and wire.adds else NO_IDS
    at = 0
    for age, count in wire.ages:
        ids = remember(ids, wire.ids[at : at + count], wire.last_a - age)
        at += count
    ids = remember(ids, wire.ids[at:], wire.last_a)
    covered[wire.key] = Covered(offset=wire.offset, ids=ids)


def size_of_covered(key: str, entry: Covered) -> int:
    """About how many bytes the whole entry takes in a record, without the ages of its ids. Cost: none."""
    return len(key) + 40 + ID_BYTES * len(entry.ids)


def size_of_session(session: OpenSession) -> int:
    """About how many bytes the whole session takes in records. Cost: none."""
    ids = ID_BYTES * len(session.ids or ())
    return len(session.key) + 80 + session.bytes + FRAGMENT_BYTES * len(session.data) + ids


def encode_record(record: CheckpointRecord) -> bytes:
    """A checkpoint record as it is stored."""
    return _encode(record)


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(CheckpointRecord).decode
