"""A worker's copy of a queue: where its fold begins, and what each record of the log does to it.

The log begins at 0, or behind what a snapshot made superfluous. There the fold begins with the first snapshot
that leaves no gap, and with the records that follow what it holds, not those that follow the snapshot itself:
in between others went on. A log that was trimmed begins with the very record through which that snapshot
goes: one of the queue's own, so its incarnation says whose snapshots count. Used by the worker
(worker/engine.py) and by the simulation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from services.queue.core.commands import CommandRecord, SnapshotPart, decode_record
from services.queue.core.fold import Answer, UnknownRules, apply_record
from services.queue.core.queue_state import QueueState
from services.queue.core.snapshot import Snapshot, decode_state, snapshot_of
from shared.errors import Conflict, InvalidInput

SNAPSHOT_EVERY = 10_000
"""Commands from one snapshot to the next."""


class LogRecord(NamedTuple):
    """A record of the log, with the time at which the broker appended it."""

    offset: int
    append_ms: int
    value: bytes


class LogMoved(Conflict):
    """The log does not go on where this copy is: it was trimmed meanwhile, or made anew. Begin again."""


@dataclass(frozen=True, slots=True)
class Folded:
    """What a record did; `writer` and `number` are its own. `is_snapshot_due`: its writer writes one."""

    writer: bytes
    number: int
    answers: Sequence[Answer]
    is_snapshot_due: bool = False


class Replica:
    """A copy of the queue whose log begins at `log_start` now; feed it every record from there on, in order.

    `state`: None until a beginning is found.
    """

    def __init__(self, log_start: int, snapshot_every: int = SNAPSHOT_EVERY) -> None:
        self.next_offset = log_start
        self.state: QueueState | None = QueueState() if log_start == 0 else None
        self._log_start = log_start
        self._snapshot_every = snapshot_every
        self._before: list[tuple[LogRecord, CommandRecord]] = []
        """Records that were read before a beginning was found; without their snapshots."""
        self._parts: dict[tuple[bytes, int], dict[int, bytes]] = {}
        self._stored_through = -1
        """The record whose state the newest whole snapshot in the log holds."""

    def __repr__(self) -> str:
        return f"<Replica at {self.next_offset}{'' if self.state else ', without a beginning'}>"

    def feed(self, record: LogRecord) -> Folded | None:
        """Folds the record; None if it changes nothing that anybody waits for.

        Raises LogMoved if it is not the next one, UnknownRules if the queue needs a newer version.
        """
        if record.offset != self.next_offset:
            raise LogMoved(f"the log goes on at {record.offset} instead of {self.next_offset}")
        self.next_offset += 1
        try:
            read = decode_record(record.value)
        except InvalidInput:  # nobody can read it, so it does nothing anywhere
            read = CommandRecord(b"", 0, ())
        if self.state is None:
            self._look_for_beginning(record, read)
            return None
        before = self.state.counts.commands // self._snapshot_every
        answers = apply_record(self.state, record.offset, record.append_ms, read)
        if read.incarnation == self.state.incarnation:
            for command in read.commands:
                if isinstance(command, SnapshotPart) and command.part == command.parts - 1:
                    self._stored_through = max(self._stored_through, command.through)
        is_due = self.state.counts.commands // self._snapshot_every > before
        return Folded(read.writer, read.number, answers, is_due)

    def snapshot(self) -> Snapshot:
        """The present state, to be stored."""
        assert self.state is not None
        return snapshot_of(self.state, self.next_offset - 1, below=max(0, self._stored_through))

    def _look_for_beginning(self, record: LogRecord, read: CommandRecord) -> None:
        kept = tuple(command for command in read.commands if not isinstance(command, SnapshotPart))
        self._before.append((record, msgspec.structs.replace(read, commands=kept)))
        if read.incarnation != self._before[0][1].incarnation:
            return
        for command in read.commands:
            if isinstance(command, SnapshotPart) and command.through + 1 >= self._log_start:
                parts = self._parts.setdefault((read.writer, command.through), {})
                parts[command.part] = command.data
                if len(parts) == command.parts:
                    self._begin(command.through, b"".join(parts[n] for n in range(command.parts)))
                    return

    def _begin(self, through: int, data: bytes) -> None:
        try:
            state = decode_state(data)
        except InvalidInput as error:
            if isinstance(error, UnknownRules):
                raise
            return  # damaged: the next snapshot will do
        for record, read in self._before:
            if record.offset > through:
                apply_record(state, record.offset, record.append_ms, read)
        self.state, self._stored_through = state, through
        self._before, self._parts = [], {}
