"""First and end offsets of partitions, asked of their leaders: one request to each broker."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Final

from aiokafka.errors import for_code
from aiokafka.protocol.offset import OffsetRequest

from shared.backoff import Backoff
from shared.errors import KafkaUnavailable
from shared.kafka.cluster import MOVED, REQUEST_TIMEOUT_S, Cluster
from shared.kafka.wire.metadata import Partition as Partition

EARLIEST: Final = -2
LATEST: Final = -1


class _Moved(KafkaUnavailable):
    """The partition is led by another broker."""


async def list_offsets(
    cluster: Cluster, partitions: Collection[Partition], which: int, *, is_committed: bool = False
) -> dict[Partition, int]:
    """The first offset of each partition (`EARLIEST`), or the next one to be written (`LATEST`).

    With `is_committed`, the latter is that of the first record whose transaction has not ended. Looks for new
    leaders for at most `REQUEST_TIMEOUT_S`, and raises KafkaUnavailable if one of the offsets cannot be had.
    """
    loop = asyncio.get_running_loop()
    until_s = loop.time() + REQUEST_TIMEOUT_S
    backoff = Backoff(first_s=0.02, cap_s=0.5)
    while True:
        try:
            return await _list(cluster, partitions, which, is_committed)
        except _Moved:
            if loop.time() > until_s:
                raise
        await asyncio.sleep(backoff.next_s())
        await cluster.refresh({topic for topic, _ in partitions})


async def _list(
    cluster: Cluster, partitions: Collection[Partition], which: int, is_committed: bool
) -> dict[Partition, int]:
    await cluster.know({topic for topic, _ in partitions})
    by_node: dict[int, list[Partition]] = {}
    for topic, number in partitions:
        leader = cluster.leader(topic, number)
        if leader is None:
            raise _Moved(f"{topic}/{number} has no leader")
        by_node.setdefault(leader.node, []).append((topic, number))
    answers = await asyncio.gather(
        *(_ask(cluster, node, asked, which, is_committed) for node, asked in by_node.items())
    )
    return {partition: offset for answer in answers for partition, offset in answer.items()}


async def _ask(
    cluster: Cluster, node: int, partitions: Collection[Partition], which: int, is_committed: bool
) -> Mapping[Partition, int]:
    topics: dict[str, list[tuple[int, int]]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append((number, which))
    request = OffsetRequest(-1, int(is_committed), list(topics.items()))
    response = await cluster.request(node, "ask", request)
    found = {}
    for topic, answers in response.topics:
        for number, error, _, offset in answers:
            if error:
                failure = _Moved if error in MOVED else KafkaUnavailable
                raise failure(f"no offset of {topic}/{number}", cause=for_code(error).__name__)
            found[topic, number] = offset
    return found
