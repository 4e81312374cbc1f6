"""Reads records near the end of a stream's log, a bounded number in a bounded time."""

from __future__ import annotations

import asyncio
from typing import Self

from services.control.core.found import RecordPage, record_row
from shared.errors import KafkaUnavailable
from shared.kafka.connect.access import Kafka
from shared.kafka.connect.cluster import Cluster
from shared.kafka.read.offsets import EARLIEST, LATEST, list_offsets
from shared.kafka.read.ranges import read_range
from shared.model.names import Names

READ_S = 5.0


class KafkaRecords:
    """A `RecordSource`; an async context manager that closes its connections."""

    def __init__(self, kafka: Kafka, names: Names) -> None:
        self._names = names
        self._cluster = Cluster(kafka)

    def __repr__(self) -> str:
        return f"<KafkaRecords by {self._cluster!r}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._cluster.close()

    async def newest(self, stream: int, limit: int, before: int | None) -> RecordPage:
        """The last `limit` records below offset `before` (None: the end). Raises KafkaUnavailable."""
        try:
            async with asyncio.timeout(READ_S):
                return await self._newest(stream, limit, before)
        except TimeoutError:
            raise KafkaUnavailable(f"stream {stream} could not be read within {READ_S:g} s") from None

    async def _newest(self, stream: int, limit: int, before: int | None) -> RecordPage:
        log = (self._names.fragments(stream), 0)
        first = (await list_offsets(self._cluster, [log], EARLIEST))[log]
        end = (await list_offsets(self._cluster, [log], LATEST))[log]
        until = end if before is None else min(before, end)
        since = max(first, until - limit)
        rows = [
            record_row(record.offset, record.timestamp, record.key, record.value)
            async for record in read_range(self._cluster, log, since, until - 1, is_committed=False)
        ]
        return RecordPage(
            stream=stream,
            topic=log[0],
            first=first,
            end=end,
            fragments=rows[::-1],
            next=since if first < since < until else None,
        )
