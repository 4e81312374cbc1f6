"""Rejects in memory: the same contract as `KafkaRejects`, and as `RejectedLog` for who sends them again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

from cli.kafka.rejects import Place, StoredReject
from services.producer.core.ingest import Rejected
from services.producer.core.reject_shares import STORED_OVERHEAD_BYTES, RejectShares
from services.producer.ports import RejectCounts
from shared.model.rejects import Reject, kept_part


def reject_of(posted: bytes, *, reason: str, detail: str, index: int) -> Reject:
    """The reject of what was posted, cut if it is too long."""
    return Reject(value=kept_part(posted), reason=reason, detail=detail, size=len(posted), index=index)


class InMemoryRejects:
    """Keeps rejects in `kept`; while `is_away` they wait, as many as fit into `max_waiting_bytes`.

    `writers` has the writer of each call. Its clock stands still, so shares do not come back.
    """

    def __init__(self, max_waiting_bytes: int = 1_000_000, share_bytes: int = 10**9) -> None:
        self.kept: list[Reject] = []
        self.writers: list[str] = []
        self.is_away = False
        self.counts = RejectCounts()
        self._max_waiting_bytes = max_waiting_bytes
        self._shares = RejectShares(share_bytes=share_bytes, refill_s=1)
        self._waiting: list[Reject] = []

    def __repr__(self) -> str:
        return f"<InMemoryRejects of {len(self.kept)}, {self.counts}>"

    def put(self, rejected: Sequence[Rejected], posted: Sequence[bytes], writer: str = "") -> None:
        """See Rejects."""
        self.writers.append(writer)
        for item, value in zip(rejected, posted, strict=True):
            reject = reject_of(value, reason=item.reason, detail=item.detail, index=item.index)
            waiting = sum(len(one.value) for one in self._waiting)
            if waiting + len(reject.value) > self._max_waiting_bytes:
                self.counts.dropped += 1
                continue
            size = len(reject.value) + STORED_OVERHEAD_BYTES
            if not self._shares.take(item.reason, size, 0.0, writer):
                self.counts.over_share[item.reason] += 1
                continue
            self.counts.cut += reject.is_cut
            self._waiting.append(reject)
            self.flush()

    def flush(self) -> None:
        """Keeps what waits, unless the topic is away."""
        if not self.is_away:
            self.kept += self._waiting
            self.counts.stored += len(self._waiting)
            self._waiting.clear()


class InMemoryRejectedLog:
    """Rejects in partitions, and the place of one reason: the same as `RejectedLog` for who replays.

    `stored` has the places as Kafka keeps them, `places` only their offsets. Retention has deleted what lies
    below `first`. The next attempts to keep a place raise what is in `fails_to_keep`, as a lost connection
    would.
    """

    def __init__(self, partitions: Sequence[Sequence[Reject]], page_size: int = 3) -> None:
        self._partitions = [list(rejects) for rejects in partitions]
        self._page_size = page_size
        self.stored: dict[int, Place] = {}
        self.first = 0
        self.fails_to_keep: list[Exception] = []
        self._dismissals: dict[int, frozenset[str]] = {}
        self.open()

    def __repr__(self) -> str:
        return f"<InMemoryRejectedLog {dict(self.bounds)}, places {self.stored}>"

    @property
    def places(self) -> dict[int, int]:
        """The offsets up to which the reason was replayed."""
        return {partition: place.offset for partition, place in self.stored.items()}

    def open(self) -> None:
        """Takes places and ends as they are now."""
        self.opened_at: Mapping[int, Place] = dict(self.stored)
        self._forgotten: set[int] = set()
        self.bounds: Mapping[int, tuple[int, int]] = {
            number: (self.first, len(rejects)) for number, rejects in enumerate(self._partitions)
        }

    def append(self, partition: int, reject: Reject) -> None:
        """Another reject, beyond the end of who has opened it already."""
        self._partitions[partition].append(reject)

    def dismiss(self, *identities: str) -> None:
        """Appends a record that dismisses these rejects, to partition 0."""
        self._dismissals[len(self._partitions[0])] = frozenset(identities)
        self.append(0, reject_of(b"", reason="unknown", detail="", index=0))

    async def read(self, partition: int, start: int) -> AsyncIterator[Sequence[StoredReject]]:
        """See RejectedLog."""
        stored = [
            StoredReject(
                partition=partition,
                offset=offset,
                time_ms=1_000 + offset,
                reject=reject,
                dismisses=self._dismissals.get(offset, frozenset()) if partition == 0 else frozenset(),
            )
            for offset, reject in enumerate(self._partitions[partition][: self.bounds[partition][1]])
        ][max(start, self.first) :]
        for at in range(0, len(stored), self._page_size):
            yield stored[at : at + self._page_size]

    def forget(self, partition: int) -> None:
        """See RejectedLog."""
        self._forgotten.add(partition)

    async def commit(self, partition: int, place: Place) -> None:
        """See RejectedLog."""
        if self.fails_to_keep:
            raise self.fails_to_keep.pop(0)
        if partition in self._forgotten or self.places.get(partition, 0) < place.offset:
            self.stored[partition] = place
        self._forgotten.discard(partition)
