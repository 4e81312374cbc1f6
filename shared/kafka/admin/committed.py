"""The committed offsets of a Kafka group with their metadata: read, committed by a non-member, and deleted.

`heads.py` reads the heads of streams from them, and replays of rejects keep their places in them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from aiokafka.protocol.admin import DescribeGroupsRequest
from aiokafka.protocol.commit import OffsetCommitRequest, OffsetFetchRequest

from shared.backoff import Backoff
from shared.errors import InvalidInput, KafkaUnavailable
from shared.kafka.connect.cluster import REQUEST_TIMEOUT_S, Cluster
from shared.kafka.connect.coordinators import LOADING, find_coordinator
from shared.kafka.connect.refusals import NO_RIGHT, reason_of, refusal
from shared.kafka.record import Partition
from shared.kafka.wire.offset_delete import OffsetDeleteRequest

_NO_MEMBER = -1, ""
"""Generation and member id of a commit from outside of the group."""
_DEFAULT_RETENTION = -1
_UNKNOWN_GROUP = 69
_UNKNOWN_MEMBER = 25


class Committed(NamedTuple):
    """A committed offset, -1 if there is none, and its metadata."""

    offset: int
    metadata: str


class KafkaGroup:
    """A Kafka group, as its coordinator knows it; remembers which broker that is, until a call fails."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster = cluster
        self._name = name
        self._coordinator = -1

    def __repr__(self) -> str:
        return f"<KafkaGroup {self._name}, coordinated by {self._coordinator}>"

    async def committed(self, partitions: Collection[Partition]) -> dict[Partition, Committed]:
        """The offset of every partition. Raises KafkaUnavailable, also if one of them cannot be had."""
        answer = await self._ask(OffsetFetchRequest(self._name, _by_topic(partitions)))
        if failed := _codes(answer) - {0}:
            raise refusal(f"no offsets of {self._name}", min(failed))
        found = {
            (topic, number): Committed(offset, metadata or "")
            for topic, rows in answer.topics
            for number, offset, metadata, _ in rows
        }
        # one that is left out would look like a stream that never committed anything
        if left_out := set(partitions) - found.keys():
            raise KafkaUnavailable(f"no offsets of {self._name} in {len(left_out)} partitions")
        return found

    async def all_committed(self) -> dict[Partition, Committed]:
        """All offsets that the group has; none of a group that there is not. Raises KafkaUnavailable."""
        answer = await self._ask(OffsetFetchRequest(self._name, None))
        if failed := _codes(answer) - {0}:
            raise refusal(f"no offsets of {self._name}", min(failed))
        return {
            (topic, number): Committed(offset, metadata or "")
            for topic, rows in answer.topics
            for number, offset, metadata, _ in rows
            if offset >= 0
        }

    async def commit(self, partition: Partition, offset: int, metadata: str) -> None:
        """Commits an offset. Raises what `commit_all` raises."""
        await self.commit_all({partition: offset}, metadata)

    async def commit_all(self, offsets: Mapping[Partition, int], metadata: str = "") -> None:
        """Commits these offsets, while the group has no members.

        Raises InvalidInput if it has some; KafkaUnavailable: then it is unknown whether they were committed.
        """
        topics: dict[str, list[tuple[int, int, str]]] = {}
        for (topic, number), offset in offsets.items():
            topics.setdefault(topic, []).append((number, offset, metadata))
        rows = list(topics.items())
        answer = await self._ask(OffsetCommitRequest(self._name, *_NO_MEMBER, _DEFAULT_RETENTION, rows))
        failed = _codes(answer) - {0}
        if _UNKNOWN_MEMBER in failed:
            raise InvalidInput(f"the Kafka group {self._name!r} has members; stop them first")
        if failed:
            raise refusal(f"the offset of {self._name} is not committed", min(failed))

    async def count_members(self) -> int:
        """How many processes are in the group; 0 of one that there is not. Raises KafkaUnavailable."""
        answer = await self._ask(DescribeGroupsRequest([self._name]))
        (found,) = answer.groups
        if found[0]:
            raise refusal(f"the members of {self._name} are not known", found[0])
        return len(found[5])

    async def delete(self, partitions: Collection[Partition]) -> None:
        """Deletes the offsets of the partitions; none is no error.

        Raises KafkaUnavailable, KafkaDenied without the right to; InvalidInput if Kafka refuses otherwise.
        """
        answer = await self._ask(OffsetDeleteRequest(self._name, _by_topic(partitions)))
        if failed := _codes(answer) - {0, _UNKNOWN_GROUP}:
            if failed & NO_RIGHT:
                raise refusal(f"no offset of {self._name} is deleted", min(failed & NO_RIGHT))
            raise InvalidInput(f"Kafka deletes no offset of {self._name}: {reason_of(min(failed))}")

    async def _ask(self, request: Any) -> Any:
        """The coordinator's answer, once it is no longer loading or another. Raises KafkaUnavailable."""
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                return await self._ask_until_loaded(request)
        except TimeoutError:
            self._coordinator = -1
            raise KafkaUnavailable(f"the coordinator of {self._name} does not answer") from None
        except KafkaUnavailable:
            self._coordinator = -1  # another broker may coordinate by now
            raise

    async def _ask_until_loaded(self, request: Any) -> Any:
        backoff = Backoff(first_s=0.02, cap_s=0.5)
        while True:
            if not self._cluster.knows(self._coordinator):
                self._coordinator = await find_coordinator(self._cluster, self._name, is_group=True)
            answer = await self._cluster.request(self._coordinator, "ask", request)
            if not _codes(answer) & LOADING:
                return answer
            self._coordinator = -1
            await asyncio.sleep(backoff.next_s())


def _by_topic(partitions: Iterable[Partition]) -> list[tuple[str, list[int]]]:
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    return list(topics.items())


def _codes(answer: Any) -> set[int]:
    """All error codes of an answer: its own and each group's, if it has one, and the last field of each
    partition's row."""
    own = getattr(answer, "error_code", 0)
    groups = {group[0] for group in getattr(answer, "groups", ())}
    return {own, *groups, *(row[-1] for _, rows in getattr(answer, "topics", ()) for row in rows)}
