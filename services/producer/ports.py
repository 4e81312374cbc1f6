"""What the producer's door needs from the outside: a place that keeps fragments.

`adapters/kafka_sink.py` is the real one; `tests/fakes/sink.py` the in-memory twin.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Protocol

from services.producer.core.ingest import Portion


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
