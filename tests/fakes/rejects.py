"""The topic of rejects in memory: the same contract as `KafkaRejects`."""

from __future__ import annotations

from collections.abc import Sequence

from services.producer.core.ingest import Rejected
from services.producer.ports import RejectCounts
from shared.rejects import Reject, reject_of


class InMemoryRejects:
    """Keeps rejects in `kept`; while `is_away` they wait, `capacity` of them."""

    def __init__(self, capacity: int = 10_000) -> None:
        self.kept: list[Reject] = []
        self.is_away = False
        self.counts = RejectCounts()
        self._capacity = capacity
        self._waiting: list[Reject] = []

    def __repr__(self) -> str:
        return f"<InMemoryRejects of {len(self.kept)}, {self.counts}>"

    def put(self, rejected: Sequence[Rejected], posted: Sequence[bytes]) -> None:
        """See Rejects."""
        for item, value in zip(rejected, posted, strict=True):
            if self.is_away and len(self._waiting) >= self._capacity:
                self.counts.dropped += 1
                continue
            reject = reject_of(value, reason=item.reason, detail=item.detail, index=item.index)
            self.counts.cut += reject.is_cut
            self._waiting.append(reject)
        self.flush()

    def flush(self) -> None:
        """Keeps what waits, unless the topic is away."""
        if not self.is_away:
            self.kept += self._waiting
            self.counts.stored += len(self._waiting)
            self._waiting.clear()
