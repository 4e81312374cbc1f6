"""When checkpoint records are written, and which: the changes of each commit, now and then everything.

Pure. Changes are written until they outweigh what they changed; then a whole set begins, whose parts ride
on as many commits as it takes. `Stream` asks for a commit's records; what they mean is in `checkpoint.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from services.consumer.core.commits.checkpoint import (
    Checkpoint,
    CheckpointRecord,
    Commit,
    CoveredWire,
    ParkedWire,
    covered_wire,
    encode_record,
)
from services.consumer.core.sessions.state import Covered, OpenSession
from shared.model.head import Head

MAX_CHUNK_BYTES = 900 * 1024
"""Of a checkpoint record, but for what one covered key or one parked session needs beyond it."""
MIN_WHOLE_BYTES = 256 * 1024
"""Changes are written on until they outweigh this and `WHOLE_FACTOR` times the last whole set."""
WHOLE_FACTOR = 4
WHOLE_RECORDS_PER_COMMIT = 4
"""A large whole set is spread over commits, so that none of them takes long."""


class CheckpointWriter:
    """Turns the changes of a stream's state into checkpoint records, and decides when to write whole.

    `written` counts the bytes since `ck`; `remaining` are the keys that a whole set under way still has
    to write, `begun_at` the offset of its first record.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.written = checkpoint.bytes
        self.last_whole = sum(_size(covered_wire(*item)) for item in checkpoint.covered.items())
        self.last_whole += sum(_size(_parked_wire(session, 0)) for session in checkpoint.parked.values())
        self.begun_at = -1
        self.remaining: deque[str] | None = None
        self._whole_bytes = 0
        self._never_written = checkpoint.head.checkpoint_from < 0

    def __repr__(self) -> str:
        left = "no whole set under way" if self.remaining is None else f"{len(self.remaining)} keys to go"
        return f"<CheckpointWriter {self.written} bytes since ck, {left}>"

    @property
    def is_whole_next(self) -> bool:
        """Whether the next commit belongs to a whole set: what it parks is then written from its start."""
        return self.remaining is not None or self._is_whole_due()

    def commit(
        self,
        head: Head,
        sessions: Sequence[tuple[bytes, bytes]],
        covered: dict[str, Covered],
        opened: dict[str, OpenSession],
        changed: dict[str, Covered],
        to_park: Sequence[OpenSession],
    ) -> Commit:
        """The commit of `head`: `changed` are the covered keys that changed since the last one, `to_park`
        the open sessions whose fragments shall move into the checkpoint now.
        """
        begins = self._begin_whole_if_due(covered, opened, has_changes=bool(changed or to_park))
        parts: list[CoveredWire | ParkedWire] = [covered_wire(key, entry) for key, entry in changed.items()]
        for session in to_park:
            # what an earlier chunk held may lie below the set under way, so then nothing builds on it
            parts.append(_parked_wire(session, session.parked if self.remaining is None else 0))
            session.parked, session.pin = len(session.data), -1
        if self.remaining is not None:
            whole = list(self._whole_part(covered, opened, WHOLE_RECORDS_PER_COMMIT * MAX_CHUNK_BYTES))
            self._whole_bytes += sum(map(_size, whole))
            parts += whole
        ends = self.remaining is not None and not self.remaining
        groups = list(_grouped(parts)) or ([[]] if begins or ends or sessions else [])
        records = [
            encode_record(
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
        checkpoint_from, self.remaining, self.begun_at = self.begun_at, None, -1
        self.last_whole, self._never_written = self._whole_bytes, False
        return checkpoint_from

    def _begin_whole_if_due(
        self, covered: dict[str, Covered], opened: dict[str, OpenSession], *, has_changes: bool
    ) -> bool:
        """Whether a whole set begins with this commit; `remaining` are then the keys that it must write."""
        if self.remaining is not None or not self._is_whole_due():
            return False
        if not (has_changes or self._never_written):
            return False
        self._whole_bytes = 0
        if self._never_written:  # then the changes are all there is
            self.remaining = deque()
        else:
            parked = (key for key, session in opened.items() if session.parked)
            self.remaining = deque(dict.fromkeys((*covered, *parked)))
        return True

    def _is_whole_due(self) -> bool:
        return self._never_written or self.written > max(MIN_WHOLE_BYTES, WHOLE_FACTOR * self.last_whole)

    def _whole_part(
        self, covered: dict[str, Covered], opened: dict[str, OpenSession], budget: int
    ) -> Iterator[CoveredWire | ParkedWire]:
        assert self.remaining is not None
        while self.remaining and budget > 0:
            key = self.remaining.popleft()
            if (entry := covered.get(key)) is not None:
                budget -= _size(wire := covered_wire(key, entry))
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
