"""Reads one stream's checkpoints partition: its records, and how far its transactions are decided.

Used by `sink.py`. Only the stream's owner writes there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from services.consumer.adapters.kafka.clients import START_TIMEOUT_S, SharedClients
from services.consumer.core.commits.checkpoint import find_head
from shared.errors import KafkaUnavailable
from shared.kafka.read.offsets import EARLIEST, list_offsets
from shared.kafka.read.ranges import read_range
from shared.model.head import Head

SETTLED_POLL_S = 0.02


class KafkaCheckpoints:
    """The checkpoints of one stream, in the partition `place`."""

    def __init__(self, shared: SharedClients, stream: int) -> None:
        self.place = shared.names.checkpoints(shared.group), stream
        self.records_read = 0
        self._shared = shared

    def __repr__(self) -> str:
        return f"<KafkaCheckpoints {self.place[0]}/{self.place[1]}>"

    async def tail(self) -> tuple[int, int]:
        """The first undecided offset, and the next to be written. Raises KafkaUnavailable."""
        return await self._shared.checkpoint_tail(self.place)

    async def first(self) -> int:
        """The first offset that was not deleted. Raises KafkaUnavailable."""
        return (await list_offsets(self._shared.cluster, [self.place], EARLIEST))[self.place]

    async def newest(self, head: Head, stable: int) -> tuple[Head, bool]:
        """The newest head in the records below `stable`, and whether its commit is known to have succeeded.

        It may be newer than the stored `head`, whose offset was not decided or was forgotten by Kafka. If it
        is not, no record after the stored head was committed. Raises KafkaUnavailable, InvalidInput.
        """
        if head.newest >= stable:
            return head, True
        if not [offset async for offset, _ in self.records(head.newest + 1, stable - 1)]:
            return head, False
        found = find_head([pair async for pair in self.records(max(head.checkpoint_from, 0), stable - 1)])
        return (head if found is None else found), True

    async def settled(self, end: int) -> None:
        """Waits until everything below `end` is decided. Raises KafkaUnavailable."""
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                while (await self.tail())[0] < end:  # noqa: ASYNC110  the broker notifies no client
                    await asyncio.sleep(SETTLED_POLL_S)
        except TimeoutError:
            raise KafkaUnavailable(f"{self!r}: still undecided below {end}") from None

    async def records(self, first: int, last: int) -> AsyncIterator[tuple[int, bytes]]:
        """The committed checkpoint records from offset `first` through `last`."""
        found = read_range(self._shared.cluster, self.place, first, last, is_committed=True)
        async for record in found:
            self.records_read += 1
            yield record.offset, record.value
