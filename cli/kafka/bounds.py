"""Where the partitions of a topic begin and end, and where in them a time is."""

from __future__ import annotations

from collections.abc import Mapping

from shared.kafka.admin.catalog import count_partitions
from shared.kafka.connect.cluster import Cluster
from shared.kafka.read.offsets import EARLIEST, LATEST, NONE, list_offsets

Bounds = Mapping[int, tuple[int, int]]
"""The half-open offsets (first, end) of each partition."""


async def bounds_of(cluster: Cluster, topic: str, *, is_committed: bool = False) -> Bounds:
    """The bounds now; with `is_committed`, of what every transaction has decided.

    Raises KafkaUnavailable, also when the topic does not exist yet.
    """
    partitions = [(topic, number) for number in range(await count_partitions(cluster, topic))]
    firsts = await list_offsets(cluster, partitions, EARLIEST)
    ends = await list_offsets(cluster, partitions, LATEST, is_committed=is_committed)
    return {partition[1]: (firsts[partition], ends[partition]) for partition in partitions}


async def starts_since(cluster: Cluster, topic: str, bounds: Bounds, since_ms: int) -> dict[int, int]:
    """The first offset of each partition that is not older than `since_ms`; its end if all are older.

    Raises KafkaUnavailable.
    """
    found = await list_offsets(cluster, [(topic, number) for number in bounds], max(0, since_ms))
    offsets = {number: found[topic, number] for number in bounds}
    return {
        number: end if offsets[number] == NONE else max(first, min(end, offsets[number]))
        for number, (first, end) in bounds.items()
    }
