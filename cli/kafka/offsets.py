"""Reads and sets the committed offsets of Kafka groups. Used by `baton offsets`.

Only groups of others are set: what a group of Baton knows hangs on its committed offsets (docs/protocol.md).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from cli.kafka.bounds import Bounds, bounds_of
from cli.kafka.connection import connected
from cli.kafka.offsets_file import Offsets
from shared.errors import InvalidInput, NotFound
from shared.kafka.admin.catalog import list_all
from shared.kafka.admin.committed import KafkaGroup
from shared.kafka.connect.access import Kafka
from shared.kafka.connect.cluster import Cluster
from shared.together import together


async def read_offsets(kafka: Kafka, groups: Collection[str]) -> tuple[Offsets, Mapping[str, Bounds]]:
    """The committed offsets of the groups, and by topic the bounds of their partitions.

    Topics that do not exist any more have no bounds. Raises NotFound for a group without offsets,
    KafkaUnavailable.
    """
    async with connected(kafka) as cluster:
        committed = await together(KafkaGroup(cluster, group).all_committed() for group in groups)
        found = {
            group: {place: one.offset for place, one in of_group.items()}
            for group, of_group in zip(groups, committed, strict=True)
        }
        if missing := [group for group, of_group in found.items() if not of_group]:
            raise NotFound(f"the Kafka group {missing[0]!r} has committed no offsets")
        topics = {topic for of_group in found.values() for topic, _ in of_group}
        return found, await _bounds(cluster, topics)


async def set_offsets(kafka: Kafka, offsets: Offsets) -> None:
    """Sets the offsets, those of a group all or none; checks all before it sets any.

    Raises InvalidInput if one lies outside of its log, for a group with members or of Baton;
    KafkaUnavailable.
    """
    for group in offsets:
        if is_of_baton(group):
            raise InvalidInput(
                f"{group!r} is a group of Baton, and its state hangs on its offsets; "
                "`baton rewind --to-file` makes another group that starts there"
            )
    async with connected(kafka) as cluster:
        bounds = await _bounds(cluster, {topic for of_group in offsets.values() for topic, _ in of_group})
        for of_group in offsets.values():
            for (topic, number), offset in of_group.items():
                _check(topic, number, offset, bounds)
        for group, of_group in offsets.items():
            await KafkaGroup(cluster, group).commit_all(of_group)


def is_of_baton(kafka_group: str) -> bool:
    """Whether a Kafka group belongs to a Baton, of any namespace.

    >>> [is_of_baton(name) for name in ("baton.default", "x.baton.queue.mail", "batons")]
    [True, True, False]
    """
    return ".baton." in f".{kafka_group}"


async def _bounds(cluster: Cluster, topics: Collection[str]) -> dict[str, Bounds]:
    known = sorted(set(await list_all(cluster)) & set(topics))
    found = await together(bounds_of(cluster, topic) for topic in known)
    return dict(zip(known, found, strict=True))


def _check(topic: str, number: int, offset: int, bounds: Mapping[str, Bounds]) -> None:
    place = bounds.get(topic, {}).get(number)
    if place is None:
        raise InvalidInput(f"there is no partition {number} of a topic {topic!r}")
    first, end = place
    if not first <= offset <= end:
        raise InvalidInput(f"{topic}/{number} holds the offsets {first} … {end - 1}, and {offset} is not one")
