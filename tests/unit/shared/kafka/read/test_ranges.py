"""Reading committed records, at once or as they come, and ranges that are read once."""

from __future__ import annotations

import asyncio

import pytest

from shared.errors import KafkaUnavailable
from shared.kafka.connect.cluster import Cluster
from shared.kafka.read.fetcher import Fetcher
from shared.kafka.read.ranges import PATIENCE_S, read_range
from tests.fakes.kafka import FakeKafka
from tests.fakes.virtual_time import virtual_time


def with_transactions() -> FakeKafka:
    """Values are offsets: 0 and 4 are committed, 1 is aborted; 4 only after two seconds."""
    kafka = FakeKafka()
    partition = kafka.create("t")
    partition.append(b"0", producer=1)
    partition.append(b"1", producer=2)
    partition.append(b"commit of 1", producer=1, control=True)
    partition.append(b"abort of 2", producer=2, control=True)
    partition.aborted = [(2, 1, 3)]
    partition.append(b"4", producer=2)
    partition.append(b"commit of 2", producer=2, control=True)
    partition.stable = 4

    def decide() -> None:
        partition.stable = None
        kafka.wake()

    asyncio.get_running_loop().call_later(2, decide)
    return kafka


@virtual_time
async def test_a_range_has_only_committed_records() -> None:
    """Without aborted transactions and control records, and it waits for the open one to end."""
    async with Cluster("fake:1", with_transactions().connect) as cluster:
        records = read_range(cluster, ("t", 0), 0, 5, is_committed=True)
        assert [record.value async for record in records] == [b"0", b"4"]


@pytest.mark.parametrize(
    ("how", "expected"), [({"is_committed": True}, [b"0", b"4"]), ({}, [b"0", b"1", b"4"])]
)
@virtual_time
async def test_a_fetcher_reads_committed_records_or_all(how: dict[str, bool], expected: list[bytes]) -> None:
    """Over both of its connections, and each record as soon as it may be read."""
    async with Cluster("fake:1", with_transactions().connect) as cluster:
        fetcher = Fetcher(cluster, **how)
        reading, found, at_once = fetcher.read("t", 0, 0), list[bytes](), 0
        async with asyncio.timeout(10):
            while len(found) < len(expected):
                found += [record.value for record in await reading.take(1.0, 100)]
                at_once = at_once or len(found)
        await fetcher.close()

    assert found == expected
    assert at_once == (1 if how else 3)


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [(6, 6, [6]), (5, 9, [5, 6, 7, 8, 9]), (9, 9, [9]), (0, 4, [3, 4]), (0, 2, []), (7, 6, [])],
)
@virtual_time
async def test_a_range_has_its_first_and_its_last_record(first: int, last: int, expected: list[int]) -> None:
    """However the log is cut into batches; what retention has removed is left out."""
    kafka = FakeKafka()
    partition = kafka.create("t")
    for _ in range(4):
        partition.append(b"one")
        partition.append(b"two", b"three")
    partition.start = 3
    async with Cluster("fake:1", kafka.connect) as cluster:
        records = read_range(cluster, ("t", 0), first, last, is_committed=False, fetch_bytes=1)
        assert [record.offset async for record in records] == expected


@pytest.mark.parametrize("how", ["without a leader", "moved", "left out of the answer"])
@virtual_time
async def test_a_range_waits_for_a_partition_that_is_away(how: str) -> None:
    """It looks for the leader until there is one that answers."""
    kafka = FakeKafka(2)
    partition = kafka.create("t")
    partition.append(b"0", b"1")
    async with Cluster("fake:1", kafka.connect) as cluster:
        await cluster.know({"t"})
        if how == "without a leader":
            partition.leader = -1
            await cluster.refresh()
            asyncio.get_running_loop().call_later(2, setattr, partition, "leader", 2)
        elif how == "moved":
            partition.leader = 2
        else:
            kafka.session_errors.append(-1)
        records = read_range(cluster, ("t", 0), 0, 1, is_committed=False)
        assert [record.value async for record in records] == [b"0", b"1"]


@pytest.mark.parametrize("readable", [0, 2])
@virtual_time
async def test_a_range_that_makes_no_progress_ends(readable: int) -> None:
    """If a record never arrives, the caller hears of it, and which one it is."""
    kafka, loop = FakeKafka(), asyncio.get_running_loop()
    partition = kafka.create("t")
    for n in range(4):
        partition.append(b"%d" % n)
    partition.stable = readable
    async with Cluster("fake:1", kafka.connect) as cluster:
        with pytest.raises(KafkaUnavailable, match=f"t/0: no record {readable} to be had, of 3"):
            async for _ in read_range(cluster, ("t", 0), 0, 3, is_committed=True):
                pass
    assert PATIENCE_S < loop.time() < 2 * PATIENCE_S
