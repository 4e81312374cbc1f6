"""Reads a known range of one partition once, from its first offset to its last: checkpoints, above all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from aiokafka.errors import for_code

from shared.backoff import Backoff
from shared.errors import KafkaUnavailable
from shared.kafka.batches import RecordBuffer, scan
from shared.kafka.cluster import MOVED, Cluster
from shared.kafka.fetch_request import NO_EPOCH, FetchedPartition, FetchRequest, Place, Wish

FETCH_BYTES = 8 * 1024 * 1024
WAIT_MS = 50
"""How long a fetch that finds nothing waits for others."""
TAKEN_AT_ONCE = 200
PATIENCE_S = 15.0
"""So long without any progress, and it ends."""


async def read_range(
    cluster: Cluster, topic: str, partition: int, first: int, last: int, *, is_committed: bool
) -> AsyncIterator[Any]:
    """The records from offset `first` through `last` that the log has, in order.

    With `is_committed`, without those of aborted transactions; it waits for open ones to end. Raises
    KafkaUnavailable, also when it gets no further for `PATIENCE_S`, or when the log begins after `first`.
    """
    loop = asyncio.get_running_loop()
    patience_s = loop.time() + PATIENCE_S
    backoff = Backoff(first_s=0.02, cap_s=0.5)
    buffer = RecordBuffer(is_committed=is_committed)
    buffer.start(first)
    while buffer.position <= last:
        before = buffer.position
        fetched = await _fetch(cluster, topic, partition, before, is_committed)
        if fetched is None or fetched.error in MOVED:
            await asyncio.sleep(backoff.next_s())
            await cluster.refresh({topic})
        elif fetched.error:
            raise KafkaUnavailable(
                f"{topic}/{partition} cannot be read", cause=for_code(fetched.error).__name__
            )
        else:
            buffer.add(fetched.records[: scan(fetched.records).size], fetched.aborted)
            while records := buffer.take(TAKEN_AT_ONCE):
                for record in records:
                    if record.offset <= last:
                        yield record
        if buffer.position > before:
            patience_s = loop.time() + PATIENCE_S
        elif loop.time() > patience_s:
            raise KafkaUnavailable(f"{topic}/{partition}: no record {before} to be had, of {last}")


async def _fetch(
    cluster: Cluster, topic: str, partition: int, offset: int, is_committed: bool
) -> FetchedPartition | None:
    """The broker's answer; None if no leader is known."""
    await cluster.know({topic})
    leader = cluster.leader(topic, partition)
    if leader is None:
        return None
    wish = Wish(offset, leader.epoch, NO_EPOCH, FETCH_BYTES)
    place = Place(leader.topic_id, partition)
    request = FetchRequest({place: wish}, WAIT_MS, FETCH_BYTES, is_committed=is_committed)
    response = await cluster.request(leader.node, "load", request)
    return next((one for one in response.partitions if one.place == place), None)
