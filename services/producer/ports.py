"""What the producer's door needs from the outside: places that keep fragments, accepted and refused.

`kafka/sink.py` and `kafka/rejects.py` are the real ones; `tests/fakes/sink.py` and
`tests/fakes/rejects.py` the in-memory twins.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from services.producer.core.ingest import Portion, Rejected


class FragmentSink(Protocol):
    """Keeps records per stream, in the order in which they are given."""

    def send(self, portions: Mapping[int, Portion]) -> Awaitable[list[int]]:
        """Takes the records at once; the result says which of them were not kept, by index, ascending.

        It is there when every record is kept, or will never be reported so. The records may be
        forgotten by the caller once this returns. Raises KafkaUnavailable when nothing at all was kept.
        A record that is not reported as kept may still be (its acknowledgement was lost): who repeats
        it gives it an `id`.
        """
        ...

    async def send_to_all(self, value: bytes) -> list[int]:
        """Puts a record without a key into every stream; the offset in each, by stream.

        Raises KafkaUnavailable unless all of them are kept; repeating is then harmless for markers.
        """
        ...

    def remarks(self) -> list[str]:
        """What ails single streams, in sentences, while others are taken."""
        ...


@dataclass(slots=True)
class RejectCounts:
    """What became of rejects: kept in the topic, lost (counted as such where that is not known), and cut."""

    stored: int = 0
    dropped: int = 0
    cut: int = 0


class Rejects(Protocol):
    """Keeps what was refused, for somebody to look at and send again; nobody waits for it."""

    counts: RejectCounts

    def put(self, rejected: Sequence[Rejected], posted: Sequence[bytes]) -> None:
        """Lets the refused fragments of a request be kept soon; `posted[n]` are the bytes of `rejected[n]`.

        Returns at once and never raises. What waits is bounded in bytes; what comes beyond is dropped.
        """
        ...
