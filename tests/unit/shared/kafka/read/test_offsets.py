"""Offsets and deletions are asked of each partition's leader, wherever that is by now."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from aiokafka.protocol.admin import DeleteRecordsRequest

from shared.errors import KafkaUnavailable
from shared.kafka.connect.cluster import MOVED, Cluster
from shared.kafka.read.offsets import (
    EARLIEST,
    LATEST,
    NONE,
    delete_records,
    list_known_offsets,
    list_offsets,
)
from tests.fakes.kafka_admin import AdministeredKafka
from tests.fakes.kafka_log import FIRST_TIME_MS
from tests.fakes.virtual_time import virtual_time

A, B = ("a", 0), ("b", 0)


@contextlib.asynccontextmanager
async def two_logs() -> AsyncIterator[tuple[AdministeredKafka, Cluster]]:
    """Ten records in A on broker 1, and four in B on broker 2; the brokers have been asked before."""
    kafka = AdministeredKafka(2)
    kafka.create("a").append(*[b"v"] * 10)
    kafka.create("b", leader=2).append(*[b"v"] * 4)
    async with Cluster("fake:1", kafka.connect) as cluster:
        await cluster.know({"a", "b"})
        yield kafka, cluster


@virtual_time
async def test_records_are_deleted_below_an_offset_by_each_leader() -> None:
    """One request to each broker; the offsets of the others stay."""
    async with two_logs() as (kafka, cluster):
        await delete_records(cluster, {A: 3, B: 4})
        firsts = await list_offsets(cluster, [A, B], EARLIEST)
        ends = await list_offsets(cluster, [A, B], LATEST)

    assert (firsts, ends) == ({A: 3, B: 4}, {A: 10, B: 4})
    assert sorted(node for node, _ in kafka.asked) == [1, 2]


@pytest.mark.parametrize(
    ("age", "expected"), [(-FIRST_TIME_MS, 0), (0, 0), (3, 3), (4, 4), (9, 9), (10, NONE)]
)
@virtual_time
async def test_a_time_finds_the_first_record_that_is_not_older(age: int, expected: int) -> None:
    """None is as late as a time after the last one."""
    async with two_logs() as (_, cluster):
        found = await list_offsets(cluster, [A], FIRST_TIME_MS + age)

    assert found == {A: expected}


@virtual_time
async def test_the_end_for_readers_of_committed_records_is_before_the_first_open_transaction() -> None:
    """Only when asked for: everybody else sees the records that it has written."""
    async with two_logs() as (kafka, cluster):
        kafka.partitions[A].stable = 6
        for ask in (list_offsets, list_known_offsets):
            assert await ask(cluster, [A, B], LATEST) == {A: 10, B: 4}
            assert await ask(cluster, [A, B], LATEST, is_committed=True) == {A: 6, B: 4}


@virtual_time
async def test_records_are_deleted_by_a_new_leader() -> None:
    """The one before refuses; the metadata names the new one."""
    async with two_logs() as (kafka, cluster):
        kafka.partitions[A].leader = 2
        await delete_records(cluster, {A: 3, B: 1})

    assert (kafka.partitions[A].start, kafka.partitions[B].start) == (3, 1)


@virtual_time
async def test_a_partition_without_a_leader_is_waited_for() -> None:
    """It has one again soon, most often."""
    async with two_logs() as (kafka, cluster):
        kafka.partitions[A].leader = -1
        await cluster.refresh()
        asyncio.get_running_loop().call_later(2, setattr, kafka.partitions[A], "leader", 2)

        assert await list_offsets(cluster, [A, B], LATEST) == {A: 10, B: 4}


@pytest.mark.parametrize("code", sorted(MOVED))
@virtual_time
async def test_a_moved_partition_is_looked_for(code: int) -> None:
    """For a bounded time, by questions and deletions alike."""
    async with two_logs() as (kafka, cluster):
        kafka.partitions[A].refusals.extend([code, code])
        assert await list_offsets(cluster, [A], LATEST) == {A: 10}

        kafka.refuse(DeleteRecordsRequest, code, code)
        await delete_records(cluster, {A: 3})
        assert kafka.partitions[A].start == 3

        kafka.refuse(DeleteRecordsRequest, *[code] * 10_000)
        with pytest.raises(KafkaUnavailable):
            await delete_records(cluster, {A: 4})


@pytest.mark.parametrize("code", [1, 29, 44, 87])
@virtual_time
async def test_a_refused_deletion_fails_at_once_and_names_the_error(code: int) -> None:
    """Trying again would not help."""
    async with two_logs() as (kafka, cluster):
        kafka.refuse(DeleteRecordsRequest, code)
        with pytest.raises(KafkaUnavailable, match=r"a/0 is refused: \w+"):
            await delete_records(cluster, {A: 3})

    assert kafka.partitions[A].start == 0
    assert len(kafka.asked) == 1


@virtual_time
async def test_a_deletion_waits_for_no_follower() -> None:
    """The leader has deleted when it reports that its time is up."""
    async with two_logs() as (kafka, cluster):
        kafka.refuse(DeleteRecordsRequest, 7)
        await delete_records(cluster, {A: 3})

    assert len(kafka.asked) == 1


@virtual_time
async def test_a_mute_broker_is_waited_for_in_bounded_time() -> None:
    """It may have deleted the records or not."""
    async with two_logs() as (kafka, cluster):
        kafka.is_mute = True
        with pytest.raises(KafkaUnavailable):
            await delete_records(cluster, {A: 3})
        kafka.is_mute = False
        kafka.wake()


@pytest.mark.parametrize("how", ["refused", "without a leader", "its broker is dead", "no such topic"])
@virtual_time
async def test_a_partition_that_is_away_hides_no_other(how: str) -> None:
    """Who looks at many logs goes on looking at the others, at once, and finds it again later."""
    async with two_logs() as (kafka, cluster):
        loop = asyncio.get_running_loop()
        if how == "refused":
            kafka.partitions[B].refusals.append(6)
        elif how == "without a leader":
            kafka.partitions[B].leader = -1
            await cluster.refresh()
        elif how == "its broker is dead":
            kafka.brokers.remove(2)
            kafka.cut(2)
        wanted = [("none", 0) if how == "no such topic" else B, A]
        began_s = loop.time()
        assert await list_known_offsets(cluster, wanted, LATEST) == {A: 10}
        assert loop.time() - began_s < 0.1
        kafka.partitions[B].leader, kafka.partitions[B].epoch = 1, 1
        assert await list_known_offsets(cluster, [A, B], LATEST) == {A: 10, B: 4}
        reads = kafka.metadata_reads
        assert await list_known_offsets(cluster, [A, B], LATEST) == {A: 10, B: 4}
        assert kafka.metadata_reads == reads
        kafka.partitions[A].leader = kafka.partitions[B].leader = -1
        await cluster.refresh()
        with pytest.raises(KafkaUnavailable):
            await list_known_offsets(cluster, [A, B], LATEST)
