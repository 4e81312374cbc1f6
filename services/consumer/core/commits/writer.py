"""Decides which checkpoint records a commit writes: its changes, and now and then everything.

Pure. A new owner reads every record since the last *whole set*, so that pile must not grow without end. Once
the changes outweigh the state they changed, a new whole set begins; a large one rides on several commits, so
that none of them takes long. When it is complete, everything below it can be deleted. `Stream` asks for a
commit's records; `checkpoint_format.py` says what they hold.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from services.consumer.core import slices
from services.consumer.core.commits.checkpoint import Checkpoint
from services.consumer.core.commits.checkpoint_format import (
    CheckpointRecord,
    CoveredWire,
    ParkedWire,
    covered_wire,
    encode_record,
)
from services.consumer.core.commits.chunks import (
    Part,
    grouped,
    parked_chunks,
    size_of_part,
)
from services.consumer.core.commits.commit import Commit
from services.consumer.core.sessions.assembly import Assembler
from services.consumer.core.sessions.covered import Change
from services.consumer.core.sessions.open_table import OpenTable
from services.consumer.core.sessions.state import Covered, OpenSession
from services.consumer.core.slices import Steps, sliced
from shared.model.head import Head

MAX_CHUNK_BYTES = 900 * 1024
"""Size of a checkpoint record. Only one that holds a single fragment may exceed it: a fragment is not split,
and settings keep it below 1 MB."""
MIN_WHOLE_BYTES = 256 * 1024
"""A whole set begins when the changes outweigh this, and `WHOLE_FACTOR` times the last whole set."""
WHOLE_FACTOR = 4
"""So writing whole sets costs at most a quarter of what writing changes does."""
LOOK_BYTES = 32
"""What looking at a session costs that is not parked, as bytes of the commit's share."""
WHOLE_RECORDS_PER_COMMIT = 2
"""How much of a large whole set one commit carries."""


class CheckpointWriter:
    """Turns the changes of a stream's state into checkpoint records, and decides when to write everything.

    `written`: bytes since the last whole set began. `remaining`: covered keys that the whole set under way
    still has to write, before parked sessions; None while there is none; `begun_at`: offset of its first
    record.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.written = checkpoint.bytes
        self.last_whole = checkpoint.whole_bytes
        self.begun_at = -1
        self.remaining: deque[str] | None = None
        self._remaining_open: deque[str] = deque()
        self._whole_bytes = 0
        self._never_written = checkpoint.head.checkpoint_from < 0

    def __repr__(self) -> str:
        left = "no whole set under way" if self.remaining is None else f"{len(self.remaining)} keys to go"
        return f"<CheckpointWriter {self.written} bytes since the whole set, {left}>"

    @property
    def is_whole_next(self) -> bool:
        """Whether the next commit is part of a whole set: then it writes what it parks from its start."""
        return self.remaining is not None or self._is_whole_due()

    def committing(
        self,
        head: Head,
        sessions: Sequence[tuple[bytes, bytes]],
        state: Assembler,
        changed: dict[str, Change],
        to_park: Sequence[OpenSession],
    ) -> Steps[Commit]:
        """The commit of `head`, in slices; marks the sessions of `to_park` as parked.

        `changed`: covered keys that changed since the last commit; `to_park`: open sessions whose fragments
        move into the checkpoint now, so that the safe offset can pass them.
        """
        covered, opened = state.covered.entries, state.open
        begins = self._begin_whole_if_due(covered, opened, has_changes=bool(changed or to_park))
        parts: list[Part] = [covered_wire(key, *change) for key, change in changed.items()]
        for some in sliced(to_park):
            for session in some:
                # a chunk from before the whole set under way will be deleted, so nothing may build on it
                parts += _chunks(session, rewrites=self.remaining is not None)
                session.mark_parked()
            yield
        if self.remaining is not None:
            yield
            room = WHOLE_RECORDS_PER_COMMIT * MAX_CHUNK_BYTES
            for whole in sliced(self._whole_part(covered, opened, room)):
                self._whole_bytes += sum(map(size_of_part, whole))
                parts += whole
                yield
        ends = self.remaining is not None and not self.remaining and not self._remaining_open
        # a commit with sessions needs a record even if nothing changed: by it the next owner sees a
        # commit that the broker has left undecided (`is_settled`)
        groups = list(grouped(parts, MAX_CHUNK_BYTES)) or ([[]] if begins or ends or sessions else [])
        if len(parts) >= slices.SLICE:
            yield
        records = _encoded(head, groups, begins=begins, ends=ends)
        return Commit(
            head=head,
            sessions=sessions,
            records=records,
            begins=0 if begins else None,
            ends=ends,
            begun_at=self.begun_at,
        )

    def committed(self, commit: Commit, offsets: Sequence[int]) -> int | None:
        """Takes note that the commit succeeded. If that completed a whole set, returns the offset below which
        the stream's checkpoints partition may now be deleted.
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
        self, covered: dict[str, Covered], opened: OpenTable, *, has_changes: bool
    ) -> bool:
        """Begins a whole set if one is due, by listing the keys that it must write; returns whether it
        did."""
        if self.remaining is not None or not self._is_whole_due():
            return False
        if not (has_changes or self._never_written):
            return False
        self._whole_bytes = 0
        self._remaining_open = deque()
        if self._never_written:  # the changes are all there is
            self.remaining = deque()
        else:
            self.remaining = deque(covered)
            self._remaining_open = deque(opened.unordered_keys())
        return True

    def _is_whole_due(self) -> bool:
        return self._never_written or self.written > max(MIN_WHOLE_BYTES, WHOLE_FACTOR * self.last_whole)

    def _whole_part(self, covered: dict[str, Covered], opened: OpenTable, budget: int) -> Iterator[Part]:
        assert self.remaining is not None
        while self.remaining and budget > 0:
            key = self.remaining.popleft()
            if (entry := covered.get(key)) is not None:
                budget -= size_of_part(wire := covered_wire(key, entry))
                yield wire
        while self._remaining_open and budget > 0:
            session = opened.get(self._remaining_open.popleft())
            if session is not None and session.parked:
                for chunk in _chunks(session, rewrites=True):
                    budget -= size_of_part(chunk)
                    yield chunk
            else:
                budget -= LOOK_BYTES


def _chunks(session: OpenSession, *, rewrites: bool) -> Iterator[ParkedWire]:
    return parked_chunks(session, MAX_CHUNK_BYTES, rewrites=rewrites)


def _encoded(head: Head, groups: Sequence[Sequence[Part]], *, begins: bool, ends: bool) -> list[bytes]:
    return [
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
