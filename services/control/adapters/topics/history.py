"""The topic `baton.history`: reads back what controls have written in the last hours, then appends samples.

Samples wait while Kafka is away, the newest few minutes of them. Nothing depends on the topic: without it a
restarted control shows an empty hour.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Iterable

from shared.backoff import Backoff
from shared.errors import BatonError
from shared.kafka.admin.topics import ensure_topics, history_topic
from shared.kafka.connect.access import Kafka
from shared.kafka.connect.cluster import Cluster
from shared.kafka.read.offsets import EARLIEST, LATEST, list_offsets
from shared.kafka.read.ranges import read_range
from shared.kafka.send.sender import Sender
from shared.model.names import Names

WAITING = 100
"""Samples that wait for Kafka; the oldest give way."""
DELIVER_S = 10.0
BATCH_BYTES = 512 * 1024

logger = logging.getLogger(__name__)


class KafkaHistory:
    """Reads back and writes while `run()` runs; creates the topic if it is missing."""

    def __init__(self, kafka: Kafka, names: Names, *, replication: int) -> None:
        self._kafka = kafka
        self._names = names
        self._replication = replication
        self._place = names.history, 0
        self._waiting: deque[bytes] = deque(maxlen=WAITING)
        self._wake = asyncio.Event()
        self._is_read = False

    def __repr__(self) -> str:
        return f"<KafkaHistory in {self._place[0]}, {len(self._waiting)} waiting>"

    def write(self, sample: bytes) -> None:
        """Queues a record; returns at once and never raises."""
        self._waiting.append(sample)
        self._wake.set()

    async def run(self, receive: Callable[[Iterable[bytes | None]], None]) -> None:
        """Passes all records of the topic to `receive`, then writes until cancelled."""
        backoff, logged = Backoff(first_s=0.5, cap_s=15.0), ""
        async with Cluster(self._kafka) as cluster:
            sender = Sender(cluster, deliver_s=DELIVER_S, max_batch_bytes=BATCH_BYTES, compression="zstd")
            try:
                while True:
                    try:
                        await self._step(cluster, sender, receive)
                        backoff.reset()
                        logged = ""
                    # control must not stop for the sake of its charts
                    except Exception as error:
                        why = error.detail if isinstance(error, BatonError) else repr(error)
                        if why != logged:
                            logger.warning("history not in Kafka", extra={"why": why})
                        logged = why
                        await asyncio.sleep(backoff.next_s())
            finally:
                await sender.close()

    async def _step(
        self, cluster: Cluster, sender: Sender, receive: Callable[[Iterable[bytes | None]], None]
    ) -> None:
        """Reads the topic back, the first time; then writes what waits, or waits for something to write."""
        if not self._is_read:
            await ensure_topics(self._kafka, [history_topic(self._names)], self._replication)
            await self._read_back(cluster, receive)
            self._is_read = True
        await self._wake.wait()
        while self._waiting:
            sample = self._waiting[0]
            await sender.send(self._place, [(None, sample, [])])
            # while it was on its way, others may have pushed it out
            with contextlib.suppress(ValueError):
                self._waiting.remove(sample)
        self._wake.clear()

    async def _read_back(self, cluster: Cluster, receive: Callable[[Iterable[bytes | None]], None]) -> None:
        first = (await list_offsets(cluster, [self._place], EARLIEST))[self._place]
        end = (await list_offsets(cluster, [self._place], LATEST))[self._place]
        records = read_range(cluster, self._place, first, end - 1, is_committed=False)
        async with contextlib.aclosing(records):  # type: ignore[type-var]
            async for record in records:
                receive([record.value])
