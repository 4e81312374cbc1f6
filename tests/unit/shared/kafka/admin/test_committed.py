"""Committed offsets over the coordinator's connection: complete or not at all, whatever it answers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiokafka.protocol.admin import DescribeGroupsRequest
from aiokafka.protocol.commit import OffsetCommitRequest, OffsetFetchRequest

from shared.errors import KafkaDenied, KafkaUnavailable
from shared.kafka.admin.committed import Committed, KafkaGroup
from shared.kafka.connect.cluster import REQUEST_TIMEOUT_S, Cluster
from shared.kafka.wire.offset_delete import OffsetDeleteRequest
from shared.kafka.wire.transactions import FindCoordinators
from tests.fakes.kafka_admin import AdministeredKafka
from tests.fakes.virtual_time import virtual_time

A, B = ("a", 0), ("b", 3)
PASSING = [14, 15, 16]
FATAL = [12, 22, 24, 25, 28, 29, 30]
UNKNOWN_GROUP = 69
Call = Callable[[KafkaGroup], Awaitable[object]]
CALLS: dict[type, Call] = {
    OffsetFetchRequest: lambda group: group.committed([A, B]),
    OffsetCommitRequest: lambda group: group.commit(A, 7, "m"),
    OffsetDeleteRequest: lambda group: group.delete([A]),
}


@contextlib.asynccontextmanager
async def asking(brokers: int = 1) -> AsyncIterator[tuple[AdministeredKafka, KafkaGroup]]:
    """A group that has committed 5 in A, and brokers that know it."""
    kafka = AdministeredKafka(brokers)
    kafka.committed["g", A] = 5, "head"
    async with Cluster("fake:1", kafka.connect) as cluster:
        yield kafka, KafkaGroup(cluster, "g")


@virtual_time
async def test_offsets_are_read_committed_and_deleted_with_their_metadata() -> None:
    """All partitions in one request; -1 says that nothing is committed."""
    async with asking() as (kafka, group):
        before = await group.committed([A, B])
        await group.commit(B, 9, "place")
        await group.delete([A])
        after = await group.committed([A, B])

    assert before == {A: Committed(5, "head"), B: Committed(-1, "")}
    assert after == {A: Committed(-1, ""), B: Committed(9, "place")}
    assert [name for _, name in kafka.asked].count("OffsetFetchRequest") == 2


@virtual_time
async def test_all_offsets_of_a_group_are_found_without_naming_a_partition() -> None:
    """Those of other groups are not among them, nor what was never committed."""
    async with asking() as (kafka, group):
        assert await group.all_committed() == {A: Committed(5, "head")}
        kafka.committed["other", B] = 1, "x"
        kafka.committed["g", ("c", 1)] = 0, ""
        kafka.committed["g", ("c", 2)] = -1, ""
        found = await group.all_committed()

        kafka.refuse(OffsetFetchRequest, 29)
        with pytest.raises(KafkaDenied, match="no offsets of g"):
            await group.all_committed()
    assert found == {A: Committed(5, "head"), ("c", 1): Committed(0, "")}


@virtual_time
async def test_many_offsets_are_committed_and_deleted_at_once() -> None:
    """In several partitions of a topic, and in several topics."""
    offsets = {("a", 0): 1, ("a", 1): 2, ("b", 3): 0}
    async with asking() as (kafka, group):
        await group.commit_all(offsets)
        found = await group.all_committed()
        await group.delete([("a", 1), ("b", 3)])
        left = await group.all_committed()

    assert found == {partition: Committed(offset, "") for partition, offset in offsets.items()}
    assert left == {A: Committed(1, "")}
    assert [name for _, name in kafka.asked].count("OffsetCommitRequest") == 1


@virtual_time
async def test_a_groups_members_are_counted() -> None:
    """Unless the coordinator does not know them."""
    async with asking() as (kafka, group):
        counts = []
        for kafka.members in (0, 3):
            counts.append(await group.count_members())
        kafka.refuse(DescribeGroupsRequest, 14, 30)
        with pytest.raises(KafkaDenied, match="the members of g are not known"):
            await group.count_members()

    assert counts == [0, 3]


@pytest.mark.parametrize("kind", CALLS)
@pytest.mark.parametrize("code", PASSING)
@virtual_time
async def test_a_coordinator_that_loads_or_moves_is_asked_again(kind: type, code: int) -> None:
    """Each time after looking which broker it is."""
    async with asking() as (kafka, group):
        kafka.refuse(kind, code, code)
        await CALLS[kind](group)

    assert [name for _, name in kafka.asked].count("FindCoordinators") == 3


@pytest.mark.parametrize("code", [29, 88, None])
@virtual_time
async def test_no_partition_is_left_out(code: int | None) -> None:
    """One that the answer lacks, or only has an error for, would look as if nothing were committed."""
    async with asking() as (kafka, group):
        kafka.refused[B] = code
        with pytest.raises(KafkaUnavailable, match="no offsets of g"):
            await group.committed([A, B])


@virtual_time
async def test_deleting_the_offsets_of_a_group_that_never_committed_is_no_error() -> None:
    """There is nothing to delete."""
    async with asking() as (kafka, group):
        kafka.refuse(OffsetDeleteRequest, UNKNOWN_GROUP)
        await group.delete([A])


@virtual_time
async def test_the_coordinator_is_looked_up_once_and_again_when_it_has_moved() -> None:
    """A lookup costs a request; the broker that coordinated before refuses."""
    async with asking(brokers=2) as (kafka, group):
        await group.committed([A])
        await group.committed([A])
        kafka.coordinator = 2
        found = await group.committed([A])

    assert found == {A: Committed(5, "head")}
    assert [(node, name) for node, name in kafka.asked if name == "OffsetFetchRequest"] == [
        *[(1, "OffsetFetchRequest")] * 3,
        (2, "OffsetFetchRequest"),
    ]
    assert [name for _, name in kafka.asked].count("FindCoordinators") == 2


@pytest.mark.parametrize("how", ["mute", "loading", "without a coordinator"])
@virtual_time
async def test_a_call_ends_in_bounded_time(how: str) -> None:
    """When no broker coordinates the group, or the one that does is silent; the next call succeeds."""
    async with asking() as (kafka, group):
        await group.committed([A])
        kafka.is_mute = how == "mute"
        if how == "loading":
            kafka.refuse(OffsetFetchRequest, *[14] * 1_000)
        if how == "without a coordinator":
            kafka.refuse(OffsetFetchRequest, 16)
            kafka.refuse(FindCoordinators, *[15] * 1_000)
        with pytest.raises(KafkaUnavailable):
            async with asyncio.timeout(2 * REQUEST_TIMEOUT_S):
                await group.committed([A])
        kafka.is_mute = False
        kafka.wake()
        kafka.refusals.clear()
        assert await group.committed([A]) == {A: Committed(5, "head")}
