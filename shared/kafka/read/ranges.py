"""Reads a known range of one partition once, from its first offset to its last: checkpoints, above all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from shared.backoff import Backoff
from shared.errors import KafkaUnavailable
from shared.kafka.connect.cluster import MOVED, Cluster
from shared.kafka.connect.refusals import refusal
from shared.kafka.read.batches import RecordBuffer, scan
from shared.kafka.read.offsets import EARLIEST, list_offsets
from shared.kafka.record import Partition
from shared.kafka.wire.fetch import NO_EPOCH, FetchedPartition, FetchRequest, Place, Wish

FETCH_BYTES = 8 * 1024 * 1024
WAIT_MS = 50
"""How long a fetch that finds nothing waits for others."""
TAKEN_AT_ONCE = 200
_OUT_OF_RANGE = 1
PATIENCE_S = 15.0
"""So long without any progress, and it ends."""


async def read_range(
    cluster: Cluster,
    partition: Partition,
    first: int,
    last: int,
    *,
    is_committed: bool,
    fetch_bytes: int = FETCH_BYTES,
) -> AsyncIterator[Any]:
    """The records from offset `first` through `last` that the log has, in order.

    `fetch_bytes`: how much one request asks for.
    With `is_committed`, without those of aborted transactions; it waits for open ones to end. Raises
    KafkaUnavailable, also when it gets no further for `PATIENCE_S`.
    """
    if last < first:
        return
    loop = asyncio.get_running_loop()
    patience_s = loop.time() + PATIENCE_S
    backoff = Backoff(first_s=0.02, cap_s=0.5)
    buffer = RecordBuffer(is_committed=is_committed)
    buffer.start(first)
    name = f"{partition[0]}/{partition[1]}"
    while buffer.position <= last:
        before = buffer.position
        fetched = await _fetch(cluster, partition, before, is_committed, fetch_bytes)
        if fetched is None or fetched.error in MOVED:
            await asyncio.sleep(backoff.next_s())
            await cluster.refresh({partition[0]})
        elif fetched.error == _OUT_OF_RANGE:
            await _skip_what_is_gone(cluster, partition, buffer)
        elif fetched.error:
            raise refusal(f"{name} cannot be read", fetched.error)
        else:
            buffer.add(fetched.records[: scan(fetched.records).size], fetched.aborted)
            while records := buffer.take(TAKEN_AT_ONCE):
                for record in records:
                    if record.offset <= last:
                        yield record
        if buffer.position > before:
            patience_s = loop.time() + PATIENCE_S
        elif loop.time() > patience_s:
            raise KafkaUnavailable(f"{name}: no record {before} to be had, of {last}")


async def _skip_what_is_gone(cluster: Cluster, partition: Partition, buffer: RecordBuffer) -> None:
    """Goes on where the log begins. Raises KafkaUnavailable if the log ends before the position."""
    start = (await list_offsets(cluster, [partition], EARLIEST))[partition]
    if start <= buffer.position:
        raise KafkaUnavailable(f"the log ends before offset {buffer.position} of {partition}")
    buffer.start(start)


async def _fetch(
    cluster: Cluster, partition: Partition, offset: int, is_committed: bool, fetch_bytes: int
) -> FetchedPartition | None:
    """The broker's answer; None if no leader is known."""
    topic, number = partition
    await cluster.know({topic})
    leader = cluster.leader(topic, number)
    if leader is None:
        return None
    wish = Wish(offset, leader.epoch, NO_EPOCH, fetch_bytes)
    place = Place(leader.topic_id, number)
    request = FetchRequest({place: wish}, WAIT_MS, fetch_bytes, is_committed=is_committed)
    response = await cluster.request(leader.node, "load", request)
    return next((one for one in response.partitions if one.place == place), None)
