"""Kafka in the simulation: the in-memory twin, reached over a `Wire` that loses and delays.

A commit whose request is late takes effect when it arrives, unless a newer producer of the stream has
started by then.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar

from services.consumer.core.commits.commit import Commit
from shared.errors import KafkaUnavailable
from tests.fakes.log import CALL_S, InMemoryLog, InMemoryReader, InMemorySink, InMemoryStreamLog
from tests.reference import Rec
from tests.simulation.wire import Wire

T = TypeVar("T")

MOST_RECORDS = 7
"""A fetch returns at most this many records, so that batches end anywhere."""


class SimulatedStreamLog(InMemoryStreamLog):
    """One process' way to the broker.

    `on_commit(stream, epoch, travelled_s)` observes each commit when it is sent, and when it arrives while
    its sender still waits. `bad`: stream → what fails at which offset, "fetch" or "commit".
    """

    def __init__(
        self,
        broker: InMemoryLog,
        process: str,
        wire: Wire,
        rng: random.Random,
        world: contextvars.Context,
        on_commit: Callable[[int, int, float], None],
        bad: Mapping[int, tuple[str, int]] = MappingProxyType({}),
    ) -> None:
        super().__init__(broker, process)
        self._bad = bad
        self.rng = rng
        self.on_commit = on_commit
        self._wire = wire
        self._world = world

    async def call(self, effect: Callable[[], T | asyncio.Future[T]], patience_s: float = CALL_S) -> T:
        return await self._wire.call(effect, patience_s, self._world)

    def check(self, what: str, stream: int, below: int) -> None:
        """Raises KafkaUnavailable if this reaches the offset that it fails at."""
        bad, offset = self._bad.get(stream, ("", 0))
        if bad == what and below > offset:
            raise KafkaUnavailable(f"offset {offset} fails the {what}")

    def most_records(self) -> int:
        return self.rng.randint(1, MOST_RECORDS)

    def reader(self, stream: int) -> SimulatedReader:
        return SimulatedReader(self, stream)

    def sink(self, stream: int) -> SimulatedSink:
        return SimulatedSink(self, stream)


class SimulatedReader(InMemoryReader):
    """Half of its failed fetches look like silence: a Kafka client retries by itself before it complains."""

    _log: SimulatedStreamLog

    async def fetch(self, timeout_s: float) -> Sequence[Rec]:
        try:
            records = await super().fetch(timeout_s)
        except KafkaUnavailable:
            if self._log.rng.random() < 0.5:
                raise
            return []
        if records:
            self._log.check("fetch", self._stream, records[-1].offset + 1)
        return records


class SimulatedSink(InMemorySink):
    """Shows its commits to `on_commit`. A commit travels from when its owner decides on it: sessions outside
    the transaction go first, and a process that freezes behind them sends the transaction when it goes on.
    """

    _log: SimulatedStreamLog
    _sent_s = 0.0

    async def commit(self, commit: Commit) -> list[int]:
        self._sent_s = asyncio.get_running_loop().time()
        self._log.on_commit(self._stream, commit.head.epoch, 0.0)
        self._log.check("commit", self._stream, commit.head.position)
        return await super().commit(commit)

    async def _transact(self, commit: Commit) -> list[int]:
        log, epoch, producer = self._log, commit.head.epoch, self._producer
        loop, sent_s, waits = asyncio.get_running_loop(), self._sent_s, True

        def arrive() -> list[int]:
            if waits:
                log.on_commit(self._stream, epoch, loop.time() - sent_s)
            return self._broker.commit(self._stream, producer, log.process, commit)

        try:
            return await log.call(arrive)
        finally:
            waits = False
