"""Kafka in memory for the producer's door: the same contract as `KafkaFragmentSink`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from services.producer.core.ingest import Portion
from services.producer.ports import FragmentSink
from shared.errors import KafkaUnavailable

Record = tuple[bytes | None, bytes]


class InMemoryFragmentSink:
    """Keeps records in `logs[stream]`; streams in `mute` never acknowledge, `down` refuses everything."""

    def __init__(self, streams: int) -> None:
        self.logs: list[list[Record]] = [[] for _ in range(streams)]
        self.mute: set[int] = set()
        self.down = False

    def send(self, portions: Mapping[int, Portion], on_outcome: Callable[[list[int]], None]) -> None:
        """See FragmentSink."""
        if self.down:
            raise KafkaUnavailable("Kafka is down")
        unstored: list[int] = []
        for stream, portion in portions.items():
            if stream in self.mute:
                unstored += portion.indexes
            else:
                self.logs[stream] += zip(portion.keys, portion.values, strict=True)
        on_outcome(sorted(unstored))

    async def send_to_all(self, value: bytes) -> list[int]:
        """See FragmentSink."""
        if self.down or self.mute:
            raise KafkaUnavailable("Kafka did not acknowledge the record in every stream")
        for log in self.logs:
            log.append((None, value))
        return [len(log) - 1 for log in self.logs]

    def remarks(self) -> list[str]:
        """See FragmentSink."""
        return [f"stream {stream}: mute" for stream in sorted(self.mute)]


async def sent(sink: FragmentSink, portions: Mapping[int, Portion]) -> list[int]:
    """The indexes that were not stored, once that is known. Raises KafkaUnavailable if none was."""
    known: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
    sink.send(portions, lambda unstored: None if known.done() else known.set_result(unstored))
    unstored = await known
    if len(unstored) == sum(len(portion.indexes) for portion in portions.values()):
        raise KafkaUnavailable("Kafka did not acknowledge the fragments in time")
    return unstored
