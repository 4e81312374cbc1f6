"""Reads the fragments of one owned stream, by the fetcher that all streams of a member share."""

from __future__ import annotations

from collections.abc import Sequence

from services.consumer.adapters.kafka.clients import SharedClients
from services.consumer.core.sessions.record import Record
from shared.errors import KafkaUnavailable
from shared.kafka.read.reading import Reading

MAX_FETCH_RECORDS = 2_000
"""Bounds one round of the fold, so that the streams of a member take turns."""


class KafkaFragmentReader:
    """One stream's reader (port `FragmentReader`)."""

    def __init__(self, shared: SharedClients, stream: int) -> None:
        self._shared = shared
        self._topic = shared.names.fragments(stream)
        self._reading: Reading | None = None

    def __repr__(self) -> str:
        return f"<KafkaFragmentReader {self._reading or self._topic!r}>"

    async def bounds(self) -> tuple[int, int]:
        return await self._shared.log_bounds((self._topic, 0))

    async def open(self, offset: int) -> None:
        if self._reading is None:
            self._reading = self._shared.fetcher.read(self._topic, 0, offset)
        else:
            self._reading.seek(offset)

    async def fetch(self, timeout_s: float) -> Sequence[Record]:
        if self._reading is None:
            raise KafkaUnavailable(f"{self!r} is not open")
        return await self._reading.take(timeout_s, MAX_FETCH_RECORDS)

    @property
    def end(self) -> int:
        return self._reading.end if self._reading is not None else -1

    async def close(self) -> None:
        if self._reading is not None:
            self._shared.fetcher.forget(self._reading)
