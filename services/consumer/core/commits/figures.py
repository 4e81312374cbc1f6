"""What a stream reports about itself: sizes and totals for `/status`, metrics, events and checks.

None of it decides anything. `Stream` (`stream.py`) has the state that these figures describe.
"""

from __future__ import annotations

from services.consumer.core.commits.writer import CheckpointWriter
from services.consumer.core.sessions.assembly import Assembler
from shared.model.head import Counts


class StreamFigures:
    """The figures of one owned stream; each costs nothing."""

    assembler: Assembler
    writer: CheckpointWriter
    _counts_before: Counts
    _closed: int
    _delivered: int
    _delivered_bytes: int

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
