"""Many partitions read by one fetcher: in order, without waiting for each other, and failing alone."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.kafka.read import fetch_lane, reading
from shared.kafka.wire.fetch import NO_EPOCH
from tests.effort import effort
from tests.fakes.kafka import FakeKafka
from tests.fakes.virtual_time import in_virtual_time, virtual_time
from tests.unit.shared.kafka.read.fetching import LONG_S, MOST, fill, numbered, reading_from, values


@given(
    batches=st.lists(st.integers(1, 30), min_size=1, max_size=12),
    start=st.integers(0, 40),
    most=st.integers(1, 25),
    fetch_bytes=st.sampled_from([150, 700, 1_000_000]),
    codec=st.sampled_from([0, 4]),
)
@settings(max_examples=effort(60), deadline=None)
def test_records_arrive_once_and_in_order_from_any_offset(
    batches: list[int], start: int, most: int, fetch_bytes: int, codec: int
) -> None:
    """However the log is cut into batches, and the batches into fetches and calls."""

    async def run() -> tuple[list[int], int]:
        kafka = FakeKafka()
        partition = kafka.create("t")
        for size in batches:
            partition.append(*(b"x" * size for _ in range(size)), codec=codec)
        first = min(start, partition.end)
        found: list[int] = []
        async with reading_from(kafka) as reader, asyncio.timeout(LONG_S):
            one = reader.read("t", 0, first)
            one._max_bytes = fetch_bytes
            while len(found) < partition.end - first:
                found += [record.offset for record in await one.take(1.0, most)]
        assert found == list(range(first, partition.end))
        return found, one.end

    found, end = in_virtual_time(run)
    assert end == sum(batches) or not found


@virtual_time
async def test_a_new_partition_does_not_wait_for_the_long_poll_under_way() -> None:
    """Nor does one that was sought: the broker answers the long poll only half a second later."""
    kafka = FakeKafka()
    for topic in ("old", "new"):
        kafka.create(topic)
    fill(kafka, "new", 5)
    async with reading_from(kafka) as reader:
        reader.read("old", 0, 0)
        await reader._cluster.know({"new"})
        await asyncio.sleep(0.3)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        one = reader.read("new", 0, 0)
        assert await values(one, 5) == numbered(0, 5)
        one.seek(2)
        assert await values(one, 3) == numbered(2, 5)
        took_s = loop.time() - began_s

    assert took_s < 4 * fetch_lane.WAIT_MS["first"] / 1000


@virtual_time
async def test_a_partition_that_joined_late_is_soon_in_the_long_poll() -> None:
    """Otherwise the second connection would fetch for ever, every 20 ms."""
    kafka = FakeKafka()
    kafka.create("a")
    async with reading_from(kafka) as reader:
        reader.read("a", 0, 0)
        await asyncio.sleep(10)
        before = len(kafka.fetches)
        await asyncio.sleep(10)

    assert len(kafka.fetches) - before <= 10 / (fetch_lane.WAIT_MS["poll"] / 1000) + 1


@virtual_time
async def test_an_idle_member_sends_only_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """1,000 idle partitions cost as much as one, over two connections; then only what has moved is named."""
    kafka = FakeKafka()
    for n in range(1_000):
        kafka.create(f"t{n}")
    async with reading_from(kafka) as reader:
        readings = [reader.read(f"t{n}", 0, 0) for n in range(1_000)]
        await asyncio.sleep(5)
        del kafka.fetches[:]
        await asyncio.sleep(5)
        idle = {len(request.encode()) for request in kafka.fetches}
        fill(kafka, "t7", 3)
        await values(readings[7], 3)
        await asyncio.sleep(1)
        named = [len(request.wishes) for request in kafka.fetches]

    assert max(idle) < 40
    assert max(named) == 1
    assert len(kafka.connections) <= 4  # poll, first, and metadata by two


@virtual_time
async def test_what_is_not_taken_is_bounded_and_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reading with much to take is left out of the fetches; what it left out comes when there is room."""
    monkeypatch.setattr(reading, "FETCH_BYTES", 2_000)
    kafka = FakeKafka()
    kafka.create("slow")
    kafka.create("fast")
    fill(kafka, "slow", 2_000)
    async with reading_from(kafka) as reader:
        slow, fast = reader.read("slow", 0, 0), reader.read("fast", 0, 0)
        slow._max_bytes = 2_000
        await asyncio.sleep(5)
        held = slow.size
        fill(kafka, "fast", 50)
        assert await values(fast, 50) == numbered(0, 50)
        assert slow.size == held
        assert await values(slow, 2_000) == numbered(0, 2_000)

    assert 0 < held <= 3_000


@virtual_time
async def test_all_readings_together_hold_a_bounded_number_of_bytes() -> None:
    """Beyond it nothing is fetched until something was taken."""
    kafka = FakeKafka()
    for n in range(20):
        kafka.create(f"t{n}")
        fill(kafka, f"t{n}", 1_000)
    async with reading_from(kafka, max_bytes=50_000) as reader:
        readings = [reader.read(f"t{n}", 0, 0) for n in range(20)]
        most = 0
        for _ in range(40):
            await asyncio.sleep(0.1)
            most = max(most, sum(one.size for one in readings))
        for one in readings:
            assert await values(one, 1_000) == numbered(0, 1_000)

    assert most <= 50_000 + 2 * reading.FETCH_BYTES


@virtual_time
async def test_a_log_that_lost_its_end_and_grew_again_is_noticed_while_it_is_read() -> None:
    """The broker compares the last record's epoch with its log, so the reader goes back by one record."""
    kafka = FakeKafka()
    partition = kafka.create("t")
    fill(kafka, "t", 6, batch=1)
    async with reading_from(kafka) as reader:
        one = reader.read("t", 0, 0)
        assert await values(one, 6) == numbered(0, 6)
        partition.truncate(3)
        partition.append(*(b"new %d" % n for n in range(3, 9)))
        kafka.wake()
        found = await values(one, 4)

    assert found[0] == (5, b"new 5")


@virtual_time
async def test_a_log_that_lost_its_end_is_noticed_even_if_the_new_leader_is_known() -> None:
    """Another reader has learnt the new leader's epoch, so no fetch is refused. The epoch of the last record,
    which each fetch names, shows the broker that the record has gone; after a seek there is none to name.
    """
    kafka = FakeKafka()
    partition = kafka.create("t")
    partition.epoch = 3
    fill(kafka, "t", 6, batch=1)
    async with reading_from(kafka) as reader:
        one = reader.read("t", 0, 0)
        assert await values(one, 6) == numbered(0, 6)
        named = [one.ask[1].last_epoch]
        partition.truncate(3)
        partition.append(*(b"new %d" % n for n in range(3, 9)))
        await reader._cluster.refresh({"t"})
        one.leader = reader._cluster.leader("t", 0)
        kafka.wake()
        found = await values(one, 4)
        one.seek(6)
        named.append(one.ask[1].last_epoch)

    assert found[0] == (5, b"new 5")
    assert named == [3, NO_EPOCH]


@virtual_time
async def test_a_topic_that_was_made_anew_is_noticed_while_it_is_read() -> None:
    """It has another id, even if its log is longer than the old one by then."""
    kafka = FakeKafka()
    kafka.create("t")
    fill(kafka, "t", 3)
    async with reading_from(kafka) as reader:
        one = reader.read("t", 0, 0)
        assert await values(one, 3) == numbered(0, 3)
        kafka.create("t").append(*(b"new %d" % n for n in range(5)))
        kafka.wake()
        found = await values(one, 3)

    assert found == [(n, b"new %d" % n) for n in (2, 3, 4)]


@virtual_time
async def test_a_topic_that_was_made_anew_is_noticed_even_if_another_reader_learns_its_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its broker never refuses the new id: so a reading whose topic has another one goes back by a record."""
    monkeypatch.setattr(reading, "FETCH_BYTES", 2_000)
    kafka = FakeKafka()
    kafka.create("t")
    fill(kafka, "t", 100)
    async with reading_from(kafka) as reader:
        one = reader.read("t", 0, 0)
        one._max_bytes = 2_000
        assert len(await one.take(1.0, 3)) == 3
        assert not one.has_room
        kafka.create("t").append(*(b"new %d" % n for n in range(300)))
        await reader._cluster.refresh({"t"})
        found = await values(one, 200)

    first_new = next(n for n, (_, value) in enumerate(found) if value.startswith(b"new"))
    assert found[first_new][0] <= (found[first_new - 1][0] if first_new else 2)


@virtual_time
async def test_a_reader_that_retention_overtook_goes_on_at_the_start() -> None:
    """And so does one beyond the end of a log that is shorter than it was: its caller compares offsets."""
    kafka = FakeKafka()
    partition = kafka.create("t")
    fill(kafka, "t", 40)
    partition.start = 20
    async with reading_from(kafka) as reader:
        early, late = reader.read("t", 0, 5), reader.read("t", 0, 99)
        found = await values(early, 20), await values(late, 20)

    assert found == (numbered(20, 40), numbered(20, 40))


@virtual_time
async def test_partitions_follow_their_leader_to_another_broker() -> None:
    """By the hint of the old one, without reading the metadata, or after it has gone."""
    kafka = FakeKafka(brokers=2)
    partition = kafka.create("t")
    fill(kafka, "t", 3)
    async with reading_from(kafka) as reader:
        one = reader.read("t", 0, 0)
        assert await values(one, 3) == numbered(0, 3)
        reads = kafka.metadata_reads
        partition.leader, partition.epoch = 2, 1
        fill(kafka, "t", 2)
        assert await values(one, 3) == numbered(2, 5)
        assert kafka.metadata_reads == reads
        kafka.brokers.remove(2)
        kafka.cut(2)
        partition.leader, partition.epoch = 1, 2
        fill(kafka, "t", 2)
        assert await values(one, 3) == numbered(4, 7)


@virtual_time
async def test_a_broken_connection_repeats_one_record_of_its_brokers_partitions() -> None:
    """Another log may be behind the next connection; partitions of other brokers go on undisturbed."""
    kafka = FakeKafka(brokers=2)
    kafka.create("a", leader=1)
    kafka.create("b", leader=2)
    async with reading_from(kafka) as reader:
        a, b = reader.read("a", 0, 0), reader.read("b", 0, 0)
        for topic, one in (("a", a), ("b", b)):
            fill(kafka, topic, 3)
            await values(one, 3)
        kafka.cut(1)
        for topic in ("a", "b"):
            fill(kafka, topic, 3)
        found = await values(a, 4), await values(b, 3)

    assert found == (numbered(2, 6), numbered(3, 6))


@virtual_time
async def test_a_mute_broker_holds_up_no_other() -> None:
    """Its partitions go on when it answers again."""
    mute, well = FakeKafka(), FakeKafka()
    for kafka in (mute, well):
        kafka.create("t")
    async with reading_from(mute) as one, reading_from(well) as other:
        readings = one.read("t", 0, 0), other.read("t", 0, 0)
        await asyncio.sleep(1)
        mute.is_mute = True
        await asyncio.sleep(3 * fetch_lane.ANSWER_TIMEOUT_S)
        mute.is_mute = False
        for kafka in (mute, well):
            fill(kafka, "t", 3)
        assert [await values(r, 3) for r in readings] == [numbered(0, 3)] * 2


@virtual_time
async def test_a_cancelled_call_loses_no_record() -> None:
    """The next one returns them."""
    kafka = FakeKafka()
    kafka.create("t")
    async with reading_from(kafka) as reader:
        one = reader.read("t", 0, 0)
        waiting = asyncio.ensure_future(one.take(30.0, MOST))
        await asyncio.sleep(1)
        waiting.cancel()
        fill(kafka, "t", 3)
        assert await values(one, 3) == numbered(0, 3)


@virtual_time
async def test_a_topic_that_appears_later_is_read_then() -> None:
    """Until then its reader waits, and asks for the metadata ever less often."""
    kafka = FakeKafka()
    async with reading_from(kafka) as reader:
        one = reader.read("t", 0, 0)
        assert await one.take(20.0, MOST) == []
        reads = kafka.metadata_reads
        kafka.create("t")
        fill(kafka, "t", 3)
        assert await values(one, 3) == numbered(0, 3)

    assert reads < 60


@pytest.mark.parametrize("has_sessions", [True, False])
@virtual_time
async def test_no_partition_starves_behind_others(
    has_sessions: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker fills its answer from the front, and leaves out a batch that does not fit behind others.

    So with records enough everywhere, and one batch that is larger than what is asked for, all go on.
    """
    monkeypatch.setattr(fetch_lane, "ANSWER_BYTES", 4_000)
    monkeypatch.setattr(fetch_lane, "FETCH_BYTES", 1_000)
    monkeypatch.setattr(reading, "FETCH_BYTES", 1_000)
    kafka = FakeKafka()
    kafka.has_sessions = has_sessions
    partitions = [kafka.create(f"t{n}") for n in range(20)]
    for partition in partitions:
        for n in range(200):
            partition.append(b"x" * (8_000 if (partition, n) == (partitions[-1], 5) else 400))
    taken = dict.fromkeys(range(20), 0)
    async with reading_from(kafka) as reader:
        readings = [reader.read(f"t{n}", 0, 0) for n in range(20)]
        for one in readings:
            one._max_bytes = 1_000
        while min(taken.values()) < 20:
            for n, one in enumerate(readings):
                taken[n] += len(await one.take(0.0, MOST))
            assert max(taken.values()) < 150
            await asyncio.sleep(0.001)
