"""What one transaction writes: sessions, checkpoint records, and the head that they lead to.

Pure. `Stream` and its writer make it, the sink (adapters/kafka/sink.py) performs it. Only the broker knows
the offsets of the checkpoint records, so the head is complete once they are stored (`Commit.head_at`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from shared.errors import InvariantBroken
from shared.model.head import Head


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
