"""What a commit writes beside the sessions, and how a checkpoint is read back.

Pure. A checkpoint is a head (shared/heads.py) and what the records `ck` … `last` of the stream's
checkpoints partition fold to: the covered keys and the parked sessions. A record carries what changed
since the one before. Now and then everything is written whole, over several commits where it is large,
with the changes between in order: an entry written whole is the entry as of that commit, so later
changes simply overwrite it, and an unfinished whole set is nothing but repeated changes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from services.consumer.core.state import Covered, OpenSession, is_droppable
from shared.errors import InvalidInput, InvariantBroken
from shared.heads import Head

MAX_CHUNK_BYTES = 900 * 1024
"""Of a checkpoint record, but for what one covered key or one parked session needs beyond it."""
MIN_WHOLE_BYTES = 256 * 1024
"""Changes are written on until they outweigh this and `WHOLE_FACTOR` times the last whole set."""
WHOLE_FACTOR = 4
WHOLE_RECORDS_PER_COMMIT = 4
"""A large whole set is spread over commits, so that none of them takes long."""


class CoveredWire(msgspec.Struct, frozen=True, array_like=True):
    """A covered key as it is stored."""

    key: str
    offset: int
    last_a: int
    ids: list[int] = []


class ParkedWire(msgspec.Struct, frozen=True, array_like=True):
    """A parked session as it is stored: its fold state, and its fragments from number `start` on."""

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


class CheckpointRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One record of the checkpoints topic (MessagePack).

    `head` is the head of its commit, but for `ck` and `last`, which only the broker knows; a whole set
    begins with the record that says `begins` and is complete with the one that says `ends`.
    """

    head: Head
    begins: bool = False
    ends: bool = False
    covered: list[CoveredWire] = []
    parked: list[ParkedWire] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """What one transaction writes, in this order: sessions, checkpoint records, the head.

    `sessions`: pairs of the record's key and value. `begins`, `ends`: which of `records` begins and ends
    a whole set; `begun_at`: where one begun by an earlier commit began.
    """

    head: Head
    sessions: Sequence[tuple[bytes, bytes]] = ()
    records: Sequence[bytes] = ()
    begins: int | None = None
    ends: bool = False
    begun_at: int = -1

    def head_at(self, offsets: Sequence[int]) -> Head:
        """The head to commit, once the broker has told the offsets of `records`."""
        if len(offsets) != len(self.records):
            raise InvariantBroken(f"{len(self.records)} checkpoint records, but {len(offsets)} offsets")
        ck = self.head.ck
        if self.ends:
            ck = self.whole_begun_at(offsets)
        return msgspec.structs.replace(self.head, ck=ck, last=offsets[-1] if offsets else self.head.last)

    def whole_begun_at(self, offsets: Sequence[int]) -> int:
        """The offset at which the whole set under way began, -1 when there is none."""
        return self.begun_at if self.begins is None else offsets[self.begins]


@dataclass(slots=True, kw_only=True)
class Checkpoint:
    """What a new owner starts from. `bytes`: size of the records that it was folded from."""

    head: Head
    covered: dict[str, Covered] = field(default_factory=dict)
    parked: dict[str, OpenSession] = field(default_factory=dict)
    bytes: int = 0


def new_stream() -> Checkpoint:
    """The checkpoint of a stream that nobody ever owned."""
    return Checkpoint(head=Head(epoch=0, seq=0, position=0, safe_offset=0))


def fold(head: Head, records: Iterable[tuple[int, bytes]], repeat_ms: int) -> Checkpoint:
    """The checkpoint that `records`, pairs of (offset, value) from `head.ck` through `head.last`, give.

    Raises InvalidInput when one of them cannot be read or some are not there.
    """
    checkpoint = Checkpoint(head=head)
    seen = -1
    for offset, raw in records:
        if offset > head.last:
            break
        record = decode_record(raw)
        if seen == -1 and not (offset == head.ck and record.begins):
            raise InvalidInput(f"no whole set begins at {offset} of the checkpoints, but {head!r}")
        _apply(checkpoint, record)
        checkpoint.bytes += len(raw)
        seen = offset
    if seen != head.last:
        raise InvalidInput(f"checkpoint records end at {seen}, but {head!r}")
    kept = {
        key: entry
        for key, entry in checkpoint.covered.items()
        if not is_droppable(entry, head.safe_offset, head.a, repeat_ms)
    }
    checkpoint.covered = dict(sorted(kept.items(), key=lambda item: item[1].offset))
    return checkpoint


def decode_record(raw: bytes) -> CheckpointRecord:
    """A checkpoint record. Raises InvalidInput when it is none."""
    try:
        return _decode(raw)
    except msgspec.DecodeError as error:
        raise InvalidInput(f"a checkpoint record cannot be read: {error}") from None


def find_head(records: Iterable[tuple[int, bytes]]) -> Head | None:
    """The newest head that a whole checkpoints partition tells, when Kafka forgot the committed one.

    None when no checkpoint was ever completed: then the stream is new.
    """
    begun = ck = -1
    head = None
    for offset, raw in records:
        record = decode_record(raw)
        begun = offset if record.begins else begun
        ck = begun if record.ends else ck
        head = msgspec.structs.replace(record.head, ck=ck, last=offset)
    return head if ck >= 0 else None


def _apply(checkpoint: Checkpoint, record: CheckpointRecord) -> None:
    for wire in record.covered:
        parked = checkpoint.parked.get(wire.key)
        if parked is not None and parked.first_offset <= wire.offset:
            del checkpoint.parked[wire.key]
        checkpoint.covered.pop(wire.key, None)
        checkpoint.covered[wire.key] = Covered(
            offset=wire.offset, last_a=wire.last_a, ids=dict.fromkeys(wire.ids)
        )
    for chunk in record.parked:
        session = checkpoint.parked.get(chunk.key)
        if session is None or session.first_offset != chunk.first_offset:
            session = OpenSession(chunk.key, chunk.first_offset, chunk.opened_at, chunk.low_t, 0, 0)
            checkpoint.parked[chunk.key] = session
        if chunk.start > len(session.data):
            raise InvalidInput(f"of the parked session of {chunk.key!r} fragments are missing")
        session.data[chunk.start :] = chunk.fragments
        session.bytes = sum(map(len, session.data))
        session.parked = len(session.data)
        session.pin = -1
        session.last_offset, session.low_t, session.last_t = chunk.last_offset, chunk.low_t, chunk.last_t
        session.w, session.last_a = chunk.w, chunk.last_a
        session.ids = dict.fromkeys(chunk.ids) or None


class CheckpointWriter:
    """Turns the changes of a stream's state into checkpoint records, and decides when to write whole.

    `written` counts the bytes since `ck`; `remaining` are the keys that a whole set under way still has
    to write, `begun_at` the offset of its first record.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.written = checkpoint.bytes
        self.last_whole = sum(_size(_covered_wire(*item)) for item in checkpoint.covered.items())
        self.last_whole += sum(_size(_parked_wire(session, 0)) for session in checkpoint.parked.values())
        self.begun_at = -1
        self.remaining: deque[str] | None = None
        self._whole_bytes = 0
        self._never_written = checkpoint.head.ck < 0

    def __repr__(self) -> str:
        left = "no whole set under way" if self.remaining is None else f"{len(self.remaining)} keys to go"
        return f"<CheckpointWriter {self.written} bytes since ck, {left}>"

    def commit(
        self,
        head: Head,
        sessions: Sequence[tuple[bytes, bytes]],
        covered: dict[str, Covered],
        opened: dict[str, OpenSession],
        changed: dict[str, Covered],
        to_park: Sequence[OpenSession],
    ) -> Commit:
        """The commit of `head`: `changed` are the covered keys that changed since the last one (also
        those that can be dropped already: they end a parked session), `to_park` the open sessions whose
        fragments shall move into the checkpoint now.
        """
        begins = (
            self.remaining is None
            and self._is_whole_due()
            and bool(changed or to_park or self._never_written)
        )
        if begins:
            parked = (key for key, session in opened.items() if session.parked)
            self.remaining = deque(dict.fromkeys((*covered, *parked)))
            self._whole_bytes = 0
        parts: list[CoveredWire | ParkedWire] = [_covered_wire(key, entry) for key, entry in changed.items()]
        for session in to_park:
            # what an earlier chunk held may lie below the set under way, so then nothing builds on it
            parts.append(_parked_wire(session, session.parked if self.remaining is None else 0))
            session.parked, session.pin = len(session.data), -1
        if self.remaining is not None:
            whole = list(self._whole_part(covered, opened, WHOLE_RECORDS_PER_COMMIT * MAX_CHUNK_BYTES))
            self._whole_bytes += sum(map(_size, whole))
            parts += whole
        ends = self.remaining is not None and not self.remaining
        groups = list(_grouped(parts)) or ([[]] if begins or ends else [])
        records = [
            _encode(
                CheckpointRecord(
                    head=head,
                    begins=begins and number == 0,
                    ends=ends and number == len(groups) - 1,
                    covered=[part for part in group if isinstance(part, CoveredWire)],
                    parked=[part for part in group if isinstance(part, ParkedWire)],
                )
            )
            for number, group in enumerate(groups)
        ]
        return Commit(
            head=head,
            sessions=sessions,
            records=records,
            begins=0 if begins else None,
            ends=ends,
            begun_at=self.begun_at,
        )

    def committed(self, commit: Commit, offsets: Sequence[int]) -> int | None:
        """Notes that the commit is known to have succeeded; below which offset the stream's checkpoints
        partition may now be deleted, if a whole set was completed by it.
        """
        size = sum(map(len, commit.records))
        self.written = size if commit.begins is not None else self.written + size
        if self.remaining is None:
            return None
        self.begun_at = commit.whole_begun_at(offsets)
        if not commit.ends:
            return None
        ck, self.remaining, self.begun_at = self.begun_at, None, -1
        self.last_whole, self._never_written = self._whole_bytes, False
        return ck

    def _is_whole_due(self) -> bool:
        return self._never_written or self.written > max(MIN_WHOLE_BYTES, WHOLE_FACTOR * self.last_whole)

    def _whole_part(
        self, covered: dict[str, Covered], opened: dict[str, OpenSession], budget: int
    ) -> Iterator[CoveredWire | ParkedWire]:
        assert self.remaining is not None
        while self.remaining and budget > 0:
            key = self.remaining.popleft()
            if (entry := covered.get(key)) is not None:
                budget -= _size(wire := _covered_wire(key, entry))
                yield wire
            if (session := opened.get(key)) is not None and session.parked:
                budget -= _size(chunk := _parked_wire(session, 0))
                yield chunk


def _grouped(parts: Sequence[CoveredWire | ParkedWire]) -> Iterator[list[CoveredWire | ParkedWire]]:
    """The parts in order, in groups of about `MAX_CHUNK_BYTES`."""
    group: list[CoveredWire | ParkedWire] = []
    size = 0
    for part in parts:
        if group and size + _size(part) > MAX_CHUNK_BYTES:
            yield group
            group, size = [], 0
        group.append(part)
        size += _size(part)
    if group:
        yield group


def _covered_wire(key: str, entry: Covered) -> CoveredWire:
    return CoveredWire(key, entry.offset, entry.last_a, list(entry.ids))


def _parked_wire(session: OpenSession, start: int) -> ParkedWire:
    return ParkedWire(
        session.key,
        session.first_offset,
        session.last_offset,
        session.opened_at,
        session.low_t,
        session.last_t,
        session.w,
        session.last_a,
        list(session.ids or ()),
        start,
        session.data[start:],
    )


def _size(part: CoveredWire | ParkedWire) -> int:
    """Bytes that the part takes in a record, nearly."""
    size = len(part.key) + 40 + 9 * len(part.ids)
    if isinstance(part, ParkedWire):
        size += sum(map(len, part.fragments)) + 5 * len(part.fragments) + 40
    return size


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(CheckpointRecord).decode
