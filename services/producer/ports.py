"""What the producer needs from outside: a place for accepted fragments, and one for rejected ones.

`kafka/sink.py` and `kafka/rejects.py` implement them on Kafka, `tests/fakes/` in memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from services.producer.core.ingest import Portion, Rejected


class FragmentSink(Protocol):
    """Stores records per stream, in the order in which it gets them."""

    def send(self, portions: Mapping[int, Portion], on_outcome: Callable[[list[int]], None]) -> None:
        """Takes over the records; then calls once, with the indexes of those that were not stored, ascending.

        It calls when the outcome of every record is known, perhaps before it returns. The caller may drop the
        records as soon as the call returns. Raises KafkaUnavailable if it takes none of them over, and never
        calls then. A record reported as not stored may be stored all the same (its acknowledgement was lost),
        so a client that retries gives it an `id`.
        """
        ...

    async def send_to_all(self, value: bytes) -> list[int]:
        """Stores a record without a key in every stream; returns its offsets, by stream.

        Raises KafkaUnavailable unless every stream stored it; repeating a marker is harmless.
        """
        ...

    def remarks(self) -> list[str]:
        """One sentence for each stream that fails while others work."""
        ...


@dataclass(slots=True)
class RejectCounts:
    """How many rejects were stored in the topic, dropped (or possibly dropped), and cut.

    `over_share`: those that were not stored because their writer had used its part of the reason's share, by
    reason.
    """

    stored: int = 0
    dropped: int = 0
    cut: int = 0
    over_share: Counter[str] = field(default_factory=Counter)


class Rejects(Protocol):
    """Stores rejected fragments for a later look and replay; no request waits for it."""

    counts: RejectCounts

    def put(self, rejected: Sequence[Rejected], posted: Sequence[bytes], writer: str = "") -> None:
        """Queues the rejected fragments of a request; `posted[n]` are the bytes of `rejected[n]`.

        `writer` is the name of the request's write key. Returns at once and never raises. The queue is
        bounded in bytes, and so is what a writer may store for a reason (core/reject_shares.py); beyond that
        rejects are dropped and counted.
        """
        ...
