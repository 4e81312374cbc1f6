"""Reads the fragments of owned streams from Kafka: one consumer per stream.

They do not share one: `assign()` on a shared consumer loses the positions and buffers of the streams that
stay, and a seek waits for the pending long poll (measured: docs/adr/0003). A separate consumer costs 6 ms to
its first record and almost nothing while idle.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition

from services.consumer.adapters.kafka.brokers import Link
from services.consumer.adapters.kafka.clients import SharedClients
from services.consumer.core.sessions.record import Record
from shared.kafka.clients import discard_consumer, translated

START_TIMEOUT_S = 10.0
FETCH_WAIT_MS = 5_000
"""Long poll of an idle stream: 288 of them cost 4 % of a core at 5 s, 20 % at 0.5 s."""
FETCH_BYTES = 4 * 1024 * 1024
MAX_FETCH_RECORDS = 2_000
"""Bounds one round of the fold, so that the streams of a member take turns."""


class KafkaFragmentReader:
    """One stream's reader (port `FragmentReader`)."""

    def __init__(self, shared: SharedClients, stream: int) -> None:
        self._partition = TopicPartition(shared.names.fragments(stream), 0)
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=shared.kafka,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="earliest",  # when retention overtakes it, go on at the log's start
            fetch_max_wait_ms=FETCH_WAIT_MS,
            consumer_timeout_ms=FETCH_WAIT_MS,  # how often it wakes up by itself; by default 0.2 s
            request_timeout_ms=FETCH_WAIT_MS + 10_000,
            fetch_max_bytes=FETCH_BYTES,
            max_partition_fetch_bytes=FETCH_BYTES,
            retry_backoff_ms=20,
            metadata_max_age_ms=300_000,
        )
        shared.brokers.lend(self._consumer._client)
        self._position = -1
        self._link: Link | None = None
        """What the last records came through; None before the first ones since a seek."""
        self._link_at_seek = Link(self._consumer, self._partition)

    def __repr__(self) -> str:
        return f"<KafkaFragmentReader {self._partition.topic} at {self._position}>"

    async def bounds(self) -> tuple[int, int]:
        with translated(f"{self!r} cannot start"):
            async with asyncio.timeout(START_TIMEOUT_S):
                if not self._consumer.assignment():
                    await self._consumer.start()
                    self._consumer.assign([self._partition])
                    # sets a position now, so that no look-up races with `open`
                    self._consumer.seek(self._partition, 0)
                    self._consumer.pause(self._partition)
                first = await self._consumer.beginning_offsets([self._partition])
                end = await self._consumer.end_offsets([self._partition])
        return first[self._partition], end[self._partition]

    async def open(self, offset: int) -> None:
        self._seek(offset)
        self._consumer.resume(self._partition)

    def _seek(self, offset: int) -> None:
        self._link, self._link_at_seek = None, Link(self._consumer, self._partition)
        self._consumer.seek(self._partition, offset)
        self._position = offset

    async def fetch(self, timeout_s: float) -> Sequence[Record]:
        with translated(f"{self!r} cannot read"):
            found: dict[Any, list[Record]] = await self._consumer.getmany(
                timeout_ms=int(timeout_s * 1000), max_records=MAX_FETCH_RECORDS
            )
        records = found.get(self._partition, [])
        if not records:
            return []
        if self._link is None:
            self._link = self._link_at_seek  # these records begin where the caller, or `_seek`, wants them to
        elif not self._link.is_same(Link(self._consumer, self._partition)):
            self._seek(self._position - 1)  # perhaps another broker, or another log: begin one record before
            return []
        self._position = records[-1].offset + 1
        return records

    @property
    def end(self) -> int:
        highwater = self._consumer.highwater(self._partition) if self._position >= 0 else None
        return max(self._position, -1 if highwater is None else highwater)

    async def close(self) -> None:
        await discard_consumer(self._consumer)
