"""The sessions of one owned stream, wherever its owner begins: with a checkpoint, from memory, or from
nothing.

`fold.py` has the rules. The assembler adds the position (the next offset to read) and the offset up to which
an earlier owner had committed: below that, records are replayed instead of folded, which rebuilds open
sessions and closes nothing. `Stream`
(core/commits/stream.py) drives it and decides what a commit writes.
"""

from __future__ import annotations

import bisect
import math
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice

from services.consumer.core.sessions.covered import CoveredKeys
from services.consumer.core.sessions.fold import Fold
from services.consumer.core.sessions.open_table import OpenTable
from services.consumer.core.sessions.record import Record
from services.consumer.core.sessions.state import Closed, OpenSession
from shared.model.fragments import Fragment
from shared.model.group import GroupSettings
from shared.model.head import NOTHING

ParkedFrom = deque[tuple[int, str]]
"""First offset and key of parked sessions."""


class Assembler(Fold):
    """A fold that knows its position. Others read its state, and change it only by its verbs.

    `position` is the next offset to read. `replay_until`: where the replay ends; the position when there is
    nothing to replay. `parked_from`: first offset and key of each parked session, in order of the offsets;
    some may have closed. `silent_to`: the last position at which nothing was left that silence had ended;
    `is_behind`: whether `close_due` has left something.
    """

    def __init__(
        self, settings: GroupSettings, *, position: int = 0, w: int = NOTHING, a: int = NOTHING
    ) -> None:
        super().__init__(settings, w=w, a=a)
        self.position = self.replay_until = position
        self.parked_from: ParkedFrom = deque()
        self.silent_to = 0
        self.is_behind = False

    def __repr__(self) -> str:
        return (
            f"<Assembler at {self.position}, W {self.w}, A {self.a}, "
            f"{len(self.open)} open, {len(self.covered)} covered>"
        )

    @property
    def is_replaying(self) -> bool:
        """Whether records below the checkpoint's position are still to come."""
        return self.position < self.replay_until

    def restore(
        self,
        *,
        covered: CoveredKeys,
        parked: OpenTable,
        parked_from: ParkedFrom,
        state_bytes: int,
        position: int,
    ) -> None:
        """Starts from a checkpoint: records from `self.position` up to `position` will be replayed.

        `parked` are in order of their last fragments; `state_bytes`: size of their fragments.
        """
        self.covered, self.open, self.state_bytes = covered, parked, state_bytes
        self.parked_from = parked_from
        self.replay_until = max(position, self.position)

    def adopt(
        self,
        *,
        position: int,
        w: int,
        a: int,
        sessions: OpenTable,
        pinned: dict[str, OpenSession],
        parked_from: ParkedFrom,
        covered: CoveredKeys,
        state_bytes: int,
        bytes_read: int,
    ) -> None:
        """Starts from another owner's memory: what it had folded up to `position`."""
        self.position = self.replay_until = position
        self.w, self.a = w, a
        self.open, self.pinned, self.covered = sessions, pinned, covered
        self.parked_from = parked_from
        self.state_bytes, self._bytes_read_before = state_bytes, bytes_read

    def feed(self, records: Sequence[Record]) -> list[Closed]:
        """Folds the records, which follow `position` in offset order; returns the sessions they closed.

        It stops when no room is left for more of them, and after a part of a marker's search. Then `position`
        is the offset of the first record that must be fed again.
        """
        if not records:
            return []
        if self.is_replaying:
            cut = bisect.bisect_left(records, self.replay_until, key=lambda record: record.offset)
            self._replay(records[:cut])
            if cut:
                self.position = records[cut - 1].offset + 1
            if cut < len(records):  # then the rest of the replay, if any, is not in the log
                self.advance(self.replay_until)
            records = records[cut:]
        closed, unfinished = self.fold(records)
        if unfinished is not None:
            self.position = unfinished.offset
        elif records:
            self.position = records[-1].offset + 1
        return closed

    def _replay(self, records: Sequence[Record]) -> None:
        """Folds records below the committed position: rebuilds what was open there, and closes nothing."""
        self._lift_thresholds()
        self.fold(records, self._rebuild)
        self._set_thresholds()

    def advance(self, position: int) -> None:
        """Moves on to `position`: nothing below it can be read any more."""
        if position > self.position and self.is_replaying:
            # parked sessions get their places when their last fragments are replayed, and some never will
            self._order_open()
        self.position = max(position, self.position)

    def close_due(self) -> list[Closed]:
        """Closes sessions that silence has ended, as far as there is room; none while replaying, or while a
        marker is searching them.
        """
        if self.is_replaying or self._marker is not None:
            return []
        closed = self.close_silent(self.position)
        oldest = self.open.oldest() if closed or self.room <= 0 else None
        self.is_behind = oldest is not None and self._is_silent(oldest)
        if not self.is_behind:
            self.silent_to = self.position
        return closed

    def unpin(self, sessions: Iterable[OpenSession]) -> None:
        """Notes that a commit parks these sessions, so that no replay needs to rebuild them."""
        for session in sessions:
            self.pinned.pop(session.key, None)
            if not session.parked:  # for the first time: those before it began before it
                self.parked_from.append((session.first_offset, session.key))

    def find_oldest(self, pinned: OpenSession | None) -> int:
        """The lowest first offset of the open sessions, -1 if there is none.

        `pinned`: the first one with a pin. A session that was never parked pins its first offset, so that one
        and the first parked one decide. Cost: one step for each parked session that has closed since.
        """
        while self.parked_from and not self._is_open(*self.parked_from[0]):
            self.parked_from.popleft()
        offsets = [first for first, _ in islice(self.parked_from, 1)]
        return min([*offsets, pinned.pin] if pinned is not None else offsets, default=-1)

    def _rebuild(self, fragment: Fragment, t: int, raw: bytes, record: Record, a_before: int) -> None:
        """Adds a fragment that is replayed to the session that it stood in."""
        key, offset = fragment.key, record.offset
        self._bytes_read_before += len(raw)
        session = self.open.get(key)
        if self.covered.covers(key, offset) or (session is not None and offset <= session.last_offset):
            self.w = max(self.w, t)  # it stands in a session that was delivered, or in a parked one
            if session is not None and offset == session.last_offset:
                self.open.move_to_end(key)  # its place among those that the replay rebuilds
        else:
            # the list stays empty: the thresholds are lifted
            self._add(fragment, t, raw, record, a_before, [])

    def _is_open(self, first_offset: int, key: str) -> bool:
        session = self.open.get(key)
        return session is not None and session.first_offset == first_offset

    def _lift_thresholds(self) -> None:
        """So that neither silence nor a limit closes anything."""
        self._gap = self._silence = self._idle = math.inf
        self._max_fragments = self._max_bytes = self._max_span = math.inf

    def _order_open(self) -> None:
        """Sorts the sessions into the order that one fold would have given them."""
        self.open = OpenTable(sorted(self.open.unordered(), key=lambda session: session.last_offset))
