"""One owned stream: folds what was read, and decides what must happen next: a commit, a tick, or a wait.

`turn` is the one question: given records and the time, it returns what must happen next, in order. The worker
(stream/worker.py) performs it and reports back by `committed`. Time comes as arguments: `now_s` is monotonic
seconds, `wall_ms` the member's own clock, which only ever proposes a tick. Parts of the decision:
`turn.py` has what a turn returns, `parking.py` what a commit parks, `ticks.py` when a tick is due, and
`writer.py` which checkpoint records a commit has.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence

from services.consumer.core import slices
from services.consumer.core.commits.checkpoint import Checkpoint, restored
from services.consumer.core.commits.commit import Commit
from services.consumer.core.commits.delivery import Deliveries
from services.consumer.core.commits.last_record import LastRecord
from services.consumer.core.commits.parking import is_replay_long, sessions_to_park
from services.consumer.core.commits.read_marks import ReadMarks
from services.consumer.core.commits.ticks import Ticks
from services.consumer.core.commits.turn import RENEW_S, Effect, Start, StreamLimits, Tick, Turn, rest_s
from services.consumer.core.commits.writer import CheckpointWriter
from services.consumer.core.sessions.record import Record
from services.consumer.core.sessions.state import Closed
from shared.errors import InvariantBroken
from shared.model.group import GroupSettings
from shared.model.head import Counts, Head

MAX_PENDING_BYTES = 8 * 1024 * 1024
"""Finished sessions that wait for their commit (`OpenSession.closing_bytes`). When they reach this, nothing
more is closed before they are committed, so no commit is larger, however many sessions one record closes: at
most 4,096 sessions, and one large session more. So it bounds memory and the size of a transaction."""


class Stream:
    """The state of one owned stream, in one epoch.

    After a turn with a commit, the next call is `committed`, or the stream is dropped: with a commit whose
    outcome is unknown, nobody can go on from its memory.
    """

    def __init__(
        self,
        *,
        group: str,
        stream: int,
        epoch: int,
        settings: GroupSettings,
        limits: StreamLimits,
        checkpoint: Checkpoint,
        now_s: float,
    ) -> None:
        self.group, self.stream, self.epoch = group, stream, epoch
        self.settings, self.limits = settings, limits
        self.head = head = checkpoint.head
        self.cut = 0
        """Offsets that retention removed before they were read."""
        self.assembler = restored(checkpoint, settings)
        self._is_start = checkpoint.is_start
        self.last_record = LastRecord(head.position - 1, head.appended, head.closing)
        self.writer = CheckpointWriter(checkpoint)
        self._counts_before = head.counts
        self._pending: list[Closed] = []
        self.assembler.room = MAX_PENDING_BYTES
        self._closed = self._delivered = self._delivered_bytes = 0
        self.read_marks = ReadMarks([(self.position, 0)])
        self._last_commit_s, self._ticks = now_s, Ticks(now_s)
        self._in_commit = False

    def __repr__(self) -> str:
        return f"<Stream {self.group}/{self.stream} epoch {self.epoch} {self.assembler!r}>"

    def start(self, log_start: int, log_end: int) -> Start:
        """Where reading begins, given the log's bounds (half-open offsets).

        `rewind`: the log ends below what was read, so it was lost: do not go on. `cut`: retention removed
        records that were still needed; `cut` counts them, and reading begins at the log's start.
        """
        # the position may be above the head's: a hint has read on without a commit
        if log_end < max(self.head.known_end, self.known_end):
            return "rewind"
        self.last_record.note_log_start(log_start)
        if log_start <= self.position:
            return "as_stored"
        self._skip_to(log_start)
        return "cut"

    def admit(self, records: Sequence[Record]) -> Sequence[Record]:
        """Those of the records that follow the position, if the log is still the one that was read before.

        Raises LogLost or LogChanged if it is not.
        """
        return self.last_record.admit(records, self.position, self.head.known_end)

    def turn(self, records: Sequence[Record], *, now_s: float, wall_ms: int, commit_s: float | None) -> Turn:
        """Folds the records, which follow the position, and returns what is due now.

        What the records and silence close is committed in parts if it is much: then this turn folds only some
        of the records, and the next one must come at once. So a turn costs what it reads and what one commit
        carries, however many sessions are open.

        `commit_s`: seconds between commits; None while the member may not write. 0 commits what has changed.
        Raises InvariantBroken when a record was read before, or when a commit is still under way.
        """
        return slices.at_once(self.turning(records, now_s=now_s, wall_ms=wall_ms, commit_s=commit_s))

    def turning(
        self, records: Sequence[Record], *, now_s: float, wall_ms: int, commit_s: float | None
    ) -> slices.Steps[Turn]:
        """What `turn` returns, in slices; between them, the stream must not be asked for anything else."""
        if self._in_commit:
            raise InvariantBroken(f"a turn before the outcome of the last one's commit: {self!r}")
        left = self.fold(records, now_s)
        closed = self.assembler.close_due()
        self._add_pending(closed)
        effects: list[Effect] = []
        # more work waits, though nothing needs to be read for it: come back at once
        has_more = left or self._is_full or self.assembler.is_behind
        is_waiting = bool(self.open_sessions) or self.has_changes or self.is_replaying
        wait_s = 0.0 if has_more else rest_s(is_waiting=is_waiting)
        if commit_s is not None and self._is_commit_due(now_s, commit_s):
            if len(records) >= slices.SLICE:
                yield  # folding them has taken its part already
            effects.append((yield from self._preparing_commit()))
        elif commit_s is not None and self.has_changes and not has_more:
            wait_s = max(0.01, self._last_commit_s + commit_s - now_s)
        if self._is_tick_due(now_s, wall_ms):
            self._ticks.last_tick_s = now_s
            effects.append(Tick())
        return Turn(tuple(effects), wait_s, left)

    def fold(self, records: Sequence[Record], now_s: float) -> Sequence[Record]:
        """Folds the records, which follow the position in offset order, and decides nothing.

        Returns those that it did not fold to their end, because too much waits for a commit, or because
        silence has more to close first: so what it has ended is never further behind than one batch.
        """
        if not records or self.assembler.is_behind:
            return records
        if records[0].offset < self.position:  # folding it again would count it twice
            raise InvariantBroken(f"offset {records[0].offset} read again: {self!r}")
        if records[0].offset > self.position:  # the log has no gaps except those of retention
            self._skip_to(records[0].offset)
        self._ticks.last_record_s, before = now_s, self.position
        self._add_pending(self.assembler.feed(records))
        left = records[bisect.bisect_left(records, self.position, key=lambda record: record.offset) :]
        if self.position > before:
            self.last_record.note_read(records[len(records) - len(left) - 1])
            self.read_marks.add(self.position, self.assembler.bytes_read)
        if self.assembler.is_within_record:
            self.last_record.note_part(left[0])
        return left

    def committed(self, commit: Commit, offsets: Sequence[int], now_s: float) -> int | None:
        """The commit succeeded, and its checkpoint records stand at `offsets`.

        Returns the offset below which the stream's checkpoints partition may be deleted, if any.
        """
        self.head = commit.head_at(offsets)
        self._last_commit_s = now_s
        self._in_commit = self._is_start = False
        self.read_marks.forget_below(self.head.safe_offset)
        return self.writer.committed(commit, offsets)

    @property
    def position(self) -> int:
        """The next offset to read."""
        return self.assembler.position

    @property
    def known_end(self) -> int:
        """The offset after the newest record that it has folded, wholly or in part: its log reaches it."""
        return max(self.position, self.last_record.known_end)

    @property
    def reads_from(self) -> int:
        """Where a reader begins: one record before the position, so that the log can be recognized."""
        return self.last_record.first_to_read(self.position)

    @property
    def is_replaying(self) -> bool:
        """Whether records below the stored position are still to come."""
        return self.assembler.is_replaying

    @property
    def is_memory(self) -> bool:
        """Whether a later owner could go on from here: nothing is being replayed, and no commit's outcome
        is unknown (a commit that was not reported as `committed` may or may not stand in the log).
        """
        return not (self._in_commit or self.is_replaying)

    @property
    def has_changes(self) -> bool:
        """Whether anything is not committed yet; never while replaying."""
        return not self.is_replaying and (
            self.position != self.head.position or bool(self._pending) or self._is_start
        )

    @property
    def pending(self) -> Sequence[Closed]:
        """Finished sessions that no commit has delivered yet."""
        return self._pending

    @property
    def open_sessions(self) -> int:
        """How many sessions are open."""
        return len(self.assembler.open)

    @property
    def state_bytes(self) -> int:
        """Size of the open sessions' fragments."""
        return self.assembler.state_bytes

    @property
    def covered_keys(self) -> int:
        """How many keys are covered."""
        return len(self.assembler.covered)

    @property
    def remembered_ids(self) -> int:
        """How many ids of closed sessions all keys together hold."""
        return self.assembler.covered.remembered_ids

    @property
    def checkpoint_bytes(self) -> int:
        """Size of the checkpoint records that a new owner would read: the last whole set and the changes
        since. Before the first whole set is complete, all that was written."""
        return self.writer.written

    @property
    def last_unreadable(self) -> tuple[int, str] | None:
        """Offset of the last record that was set aside, and why."""
        return self.assembler.last_unreadable

    @property
    def counts(self) -> Counts:
        """Totals through the position, those of earlier owners included."""
        before, state = self._counts_before, self.assembler
        return Counts(
            fragments=before.fragments + state.fragments,
            bytes=before.bytes + state.bytes,
            repeats=before.repeats + state.repeats,
            markers=before.markers + state.markers,
            ticks=before.ticks + state.ticks,
            unreadable=before.unreadable + state.unreadable,
            sessions=before.sessions + self._closed,
            delivered=before.delivered + self._delivered,
            delivered_bytes=before.delivered_bytes + self._delivered_bytes,
            covered=before.covered + state.skipped,
        )

    def resume(self, epoch: int, now_s: float) -> None:
        """Goes on from memory in a new epoch, after the stored head was found to be this one's."""
        if not self.is_memory:
            raise InvariantBroken(f"no memory to go on from: {self!r}")
        self.epoch = epoch
        # the log is read anew: what is remembered about reading it no longer holds
        self.assembler.forget_marker()
        self.last_record.expect()
        self._last_commit_s, self._ticks = now_s, Ticks(now_s)

    def take_over(
        self,
        *,
        counts: Counts,
        pending: list[Closed],
        read_at: Sequence[tuple[int, int]],
        appended: int,
        closing: int,
    ) -> None:
        """Goes on with what an earlier owner had not committed, and with how much it had read, and where.

        `appended`, `closing`: those of a head at its position.
        """
        self.last_record = LastRecord(self.position - 1, appended, closing)
        self._counts_before = counts
        self._pending = pending
        self.assembler.room = MAX_PENDING_BYTES - sum(closed.session.closing_bytes for closed in pending)
        self.read_marks = ReadMarks(read_at)

    def _skip_to(self, offset: int) -> None:
        self.cut += offset - self.position
        self.assembler.forget_marker()
        self.assembler.advance(offset)
        self.last_record.note_log_start(offset)

    def _is_commit_due(self, now_s: float, commit_s: float) -> bool:
        """Whether to commit now: something changed and `commit_s` passed, or too much waits."""
        if self.is_replaying:  # the stored head is further on
            return False
        since = now_s - self._last_commit_s
        if not self.has_changes:
            return since >= RENEW_S
        return (
            since >= commit_s
            or self._is_full
            or self._is_start
            # commits must be closer together than parking's steps, or parking could not keep up
            or self.position - self.head.position > self.limits.max_replay_fragments // 4
            # one commit parks only a share, so the next follows until a replay is short again
            or is_replay_long(self.head.safe_offset, self.assembler, self.read_marks, self.limits)
        )

    @property
    def _is_full(self) -> bool:
        """Whether nothing more may be closed before what waits is committed."""
        return self.assembler.room <= 0

    def _is_tick_due(self, now_s: float, wall_ms: int) -> bool:
        """Whether, by the member's own clock, a session is idle on a silent stream."""
        if self.is_replaying or not self._ticks.may_come(now_s):
            return False
        oldest = self.assembler.open.oldest()
        return oldest is not None and wall_ms - oldest.last_a > self.settings.idle_ms

    def _preparing_commit(self) -> slices.Steps[Commit]:
        """All that one transaction has to write now, at the cost of what has changed.

        Raises InvariantBroken when the safe offset would move back.
        """
        state = self.assembler
        self._in_commit = True
        to_park = sessions_to_park(state, self.read_marks, self.limits, rewrites=self.writer.is_whole_next)
        state.unpin(to_park)
        # what is parked in this very commit pins nothing any more
        first = next(iter(state.pinned.values()), None)
        safe_offset = state.position if first is None else first.pin
        w, a = (state.w, state.a) if first is None else (first.pin_w, first.pin_a)
        if safe_offset < self.head.safe_offset:
            raise InvariantBroken(f"the safe offset fell to {safe_offset} from {self.head!r}: {self!r}")
        head = Head(
            epoch=self.epoch,
            seq=self.head.seq + 1,
            position=state.position,
            safe_offset=safe_offset,
            w=w,
            a=a,
            checkpoint_from=self.head.checkpoint_from,
            newest=self.head.newest,
            appended=self.last_record.appended_before(state.position),
            closing=self.last_record.closing_behind(state.position),
            log=self.head.log,
            oldest=state.find_oldest(first),
            silent_to=state.silent_to,
            counts=self.counts,
        )
        changed = state.covered.take_changes(safe_offset, a)
        sessions = Deliveries(self._pending, self.group, self.stream, self.epoch, head.log)
        self._pending, state.room = [], MAX_PENDING_BYTES
        return (yield from self.writer.committing(head, sessions, state, changed, to_park))

    def _add_pending(self, closed: list[Closed]) -> None:
        self._pending += closed
        self._closed += len(closed)
        for one in closed:
            self._delivered += len(one.session.data)
            self._delivered_bytes += one.session.bytes
