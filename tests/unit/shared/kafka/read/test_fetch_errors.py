"""Errors of fetches: each concerns one partition, and a lasting one keeps nobody busy."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable

import pytest
from aiokafka.record.util import calc_crc32c

from shared.errors import KafkaUnavailable
from shared.kafka.connect.cluster import MOVED
from shared.kafka.connect.refusals import reason_of
from shared.kafka.read import batches, fetch_lane, reading
from shared.kafka.read.batches import Scan
from tests.fakes.kafka import FakeKafka
from tests.fakes.virtual_time import virtual_time
from tests.unit.shared.kafka.read.fetching import MOST, fill, numbered, reading_from, values

CODES = [-1, *range(1, 140)]
"""Every error code of Kafka, and some that it does not have yet."""
OUT_OF_RANGE = 1
PASSING = MOVED | {OUT_OF_RANGE}


@pytest.mark.parametrize("answer", [0, 2])
@virtual_time
async def test_every_refusal_concerns_one_partition(answer: int) -> None:
    """At the first answer or a later one: that one goes on, or fails with the reason until it is sought."""
    for code in CODES:
        kafka = FakeKafka()
        for topic in ("sick", "well"):
            kafka.create(topic)
        async with reading_from(kafka) as reader:
            sick, well = reader.read("sick", 0, 0), reader.read("well", 0, 0)
            found = {"sick": list[tuple[int, bytes]](), "well": list[tuple[int, bytes]]()}
            reasons = []
            for turn in range(4):
                if turn == answer:
                    times = 1 if code == OUT_OF_RANGE else 2  # the next one would hit the look for the start
                    kafka.partitions["sick", 0].refusals.extend([code] * times)
                for topic, one in (("sick", sick), ("well", well)):
                    fill(kafka, topic, 3)
                    while not found[topic] or found[topic][-1][0] < 3 * turn + 2:
                        try:
                            found[topic] += await values(one, 1)
                        except KafkaUnavailable as error:
                            reasons.append((topic, error.detail.partition(": ")[2].partition(": ")[0]))
                            one.seek(found[topic][-1][0] + 1 if found[topic] else 0)

        assert found["well"] == numbered(0, 12)
        assert sorted(set(found["sick"])) == numbered(0, 12)
        # both lanes may meet it
        assert len(reasons) <= 2
        assert set(reasons) == (set() if code in PASSING else {("sick", reason_of(code))})
        if code != OUT_OF_RANGE:
            assert len(found["sick"]) <= 12 + 2  # each refusal repeats one record


@virtual_time
async def test_every_error_of_a_whole_answer_loses_nothing() -> None:
    """The broker has lost the session, or something else is wrong: the next fetch names everything again."""
    for code in CODES:
        kafka = FakeKafka()
        for topic in ("a", "b"):
            kafka.create(topic)
        async with reading_from(kafka) as reader:
            a, b = reader.read("a", 0, 0), reader.read("b", 0, 0)
            for turn in range(3):
                kafka.session_errors.extend([code] * turn)
                for topic, one in (("a", a), ("b", b)):
                    fill(kafka, topic, 2)
                    while (await values(one, 1))[-1] != numbered(2 * turn + 1, 2 * turn + 2)[0]:
                        pass


@pytest.mark.parametrize("what", ["partition", "answer", "leader"])
@virtual_time
async def test_a_lasting_error_is_asked_about_ever_less_often(what: str) -> None:
    """However many partitions it concerns, neither the brokers nor the process are kept busy by it."""
    kafka = FakeKafka()
    names = [f"t{n}" for n in range(20)]
    partitions = [kafka.create(name) for name in names]
    async with reading_from(kafka) as reader:
        readings = [reader.read(name, 0, 0) for name in names]
        await asyncio.sleep(10)
        fetches, reads = len(kafka.fetches), kafka.metadata_reads
        for n, partition in enumerate(partitions):
            await asyncio.sleep(0.02)
            if what == "partition":
                partition.refusals.extend([56] * 10_000)
            elif what == "leader":
                partition.leader = -1
            elif n == 0:
                kafka.session_errors.extend([-1] * 10_000)
        await asyncio.sleep(20)
        fetches, reads = len(kafka.fetches) - fetches, kafka.metadata_reads - reads
        kafka.session_errors.clear()
        for name, partition, one in zip(names, partitions, readings, strict=True):
            partition.refusals.clear()
            partition.leader = 1
            fill(kafka, name, 3)
            assert await values(one, 3) == numbered(0, 3)

    assert reads < 5 * 21
    assert fetches < 10 * 21


@virtual_time
async def test_a_partition_that_has_no_leader_does_not_delay_the_search_for_others() -> None:
    """It may be without one for hours."""
    kafka = FakeKafka()
    kafka.create("orphan").leader = -1
    moved = kafka.create("moved")
    loop = asyncio.get_running_loop()
    async with reading_from(kafka) as reader:
        reader.read("orphan", 0, 0)
        one = reader.read("moved", 0, 0)
        for turn in range(20):
            await asyncio.sleep(10.1)
            moved.refusals.append(6)  # without a hint where the leader is
            moved.epoch += 1
            moved.leader = 1
            began_s = loop.time()
            fill(kafka, "moved", 2)
            await values(one, 2)
            assert loop.time() - began_s < 0.2, turn


@virtual_time
async def test_damaged_records_fail_their_reader_alone() -> None:
    """What precedes them is delivered first."""
    kafka = FakeKafka()
    damaged = kafka.create("sick")
    kafka.create("well")
    for topic in ("sick", "well"):
        fill(kafka, topic, 20)
    raw = bytearray(damaged.batches[1].data)
    raw[-1] ^= 1
    damaged.batches[1].data = bytes(raw)
    async with reading_from(kafka) as reader:
        sick, well = reader.read("sick", 0, 0), reader.read("well", 0, 0)
        assert await values(sick, 10) == numbered(0, 10)
        with pytest.raises(KafkaUnavailable, match="damaged records"):
            await sick.take(1.0, MOST)
        with pytest.raises(KafkaUnavailable, match="damaged records"):
            await sick.take(1.0, MOST)
        assert await values(well, 20) == numbered(0, 20)


def with_header_that_is_no_text(raw: bytearray) -> None:
    """A header's name may be any bytes to a broker."""
    raw[-1:] = b"\x02\x02\xff\x00"  # one header: a name of one byte, and an empty value
    raw[61] += 2 * 3  # the record's length, as a zigzag varint


def compressed_badly(codec: int) -> Callable[[bytearray], None]:
    def damage(raw: bytearray) -> None:
        raw[22] |= codec
        raw[61:] = b"not compressed at all"

    return damage


@pytest.mark.parametrize(
    "damage",
    [with_header_that_is_no_text, *(compressed_badly(codec) for codec in (1, 2, 3, 4, 5))],
    ids=["header", "gzip", "snappy", "lz4", "zstd", "unknown"],
)
@virtual_time
async def test_records_that_cannot_be_decoded_fail_their_reader_alone(
    damage: Callable[[bytearray], None],
) -> None:
    """Their checksum is right: whoever wrote them has written nonsense. It must not end the process."""
    kafka = FakeKafka()
    for topic in ("sick", "well"):
        kafka.create(topic)
        fill(kafka, topic, 3, batch=1)
    batch = kafka.partitions["sick", 0].batches[1]
    raw = bytearray(batch.data)
    damage(raw)
    struct.pack_into(">i", raw, 8, len(raw) - 12)
    struct.pack_into(">I", raw, 17, calc_crc32c(bytes(raw[21:])))
    batch.data = bytes(raw)
    async with reading_from(kafka) as reader:
        sick, well = reader.read("sick", 0, 0), reader.read("well", 0, 0)
        assert await values(sick, 1) == numbered(0, 1)
        for _ in range(2):
            with pytest.raises(KafkaUnavailable, match="damaged records: at 1"):
                await sick.take(1.0, MOST)
        assert await values(well, 3) == numbered(0, 3)


@virtual_time
async def test_records_of_an_old_format_fail_their_reader_alone() -> None:
    """Their fields are at other places, so nothing of them can be used."""
    kafka = FakeKafka()
    for topic in ("old", "well"):
        kafka.create(topic)
        fill(kafka, topic, 3)
    batch = kafka.partitions["old", 0].batches[0]
    batch.data = batch.data[:16] + b"\1" + batch.data[17:]
    async with reading_from(kafka) as reader:
        old, well = reader.read("old", 0, 0), reader.read("well", 0, 0)
        with pytest.raises(KafkaUnavailable, match="a format that Baton does not read"):
            await values(old, 1)
        assert await values(well, 3) == numbered(0, 3)


@virtual_time
async def test_a_fault_of_ours_does_not_end_the_reading(
    monkeypatch: pytest.MonkeyPatch, faults_of_ours: list[str]
) -> None:
    """Without its loop, all streams of a broker would stand still, and nothing would say so."""
    kafka = FakeKafka()
    kafka.create("t")
    scan, faults = batches.scan, [1, 2, 3]

    def failing(data: bytes) -> Scan:
        if faults:
            faults.pop()
            raise ZeroDivisionError
        return scan(data)

    monkeypatch.setattr(reading, "scan", failing)
    async with reading_from(kafka) as reader:
        one = reader.read("t", 0, 0)
        fill(kafka, "t", 3)
        assert await values(one, 3) == numbered(0, 3)

    assert faults == []
    assert ["fetching failed" in fault for fault in faults_of_ours] == [True] * 3
    faults_of_ours.clear()


@pytest.mark.parametrize(("topic", "offset"), [("t", 20), ("t", 5), ("none", 0)])
@virtual_time
async def test_a_forgotten_reading_costs_nothing_more(topic: str, offset: int) -> None:
    """Whether it was read, looked for the log's start, or had no leader."""
    kafka = FakeKafka()
    for name in ("t", "other"):
        kafka.create(name)
    fill(kafka, "t", 40)
    kafka.partitions["t", 0].start = 20
    async with reading_from(kafka) as reader:
        reader.read("other", 0, 0)
        one = reader.read(topic, 0, offset)
        await asyncio.sleep(0.004)
        for _ in range(2):  # the second time, nothing is left to end
            reader.forget(one)
        await asyncio.sleep(5)
        size, reads = one.size, kafka.metadata_reads
        fill(kafka, "t", 10)
        await asyncio.sleep(30)

        assert (one.size, kafka.metadata_reads) == (size, reads)
        assert [len(wishes) for wishes in kafka.sessions.values()] == [1]


@virtual_time
async def test_a_mute_brokers_partitions_are_read_from_their_next_leader() -> None:
    """Nobody says that there is one; the answer has been waited for in vain."""
    kafka, loop = FakeKafka(brokers=2), asyncio.get_running_loop()
    partition = kafka.create("t")
    async with reading_from(kafka) as reader:
        one = reader.read("t", 0, 0)
        await asyncio.sleep(1)
        kafka.muted.add(1)
        partition.leader, partition.epoch = 2, 1
        fill(kafka, "t", 3)
        began_s = loop.time()
        assert await values(one, 3) == numbered(0, 3)

        assert loop.time() - began_s < fetch_lane.ANSWER_TIMEOUT_S + 3


@virtual_time
async def test_closing_ends_all_that_runs() -> None:
    """Before it returns: nothing is fetched, and no leader looked for, any more."""
    kafka = FakeKafka()
    kafka.create("t")
    async with reading_from(kafka) as reader:
        readings = [reader.read(topic, 0, 0) for topic in ("t", "none")]
        await asyncio.sleep(1)
        await reader.close()

        assert asyncio.all_tasks() == {asyncio.current_task()}
        for one in readings:
            reader.forget(one)


@virtual_time
async def test_a_reader_that_seeks_is_not_moved_by_the_search_for_the_start() -> None:
    """The log's start was looked for because of another position."""
    kafka = FakeKafka()
    kafka.create("t")
    fill(kafka, "t", 40)
    kafka.partitions["t", 0].start = 20
    async with reading_from(kafka) as reader:
        one = reader.read("t", 0, 5)
        for _ in range(100):
            await asyncio.sleep(0.0005)
            if one in reader._overtaken:
                break
        one.seek(30)
        assert await values(one, 10) == numbered(30, 40)


@pytest.mark.parametrize("has_sessions", [True, False])
@virtual_time
async def test_a_lost_fetch_session_loses_nothing(has_sessions: bool) -> None:
    """A broker may drop a session at any time, or have none to spare."""
    kafka = FakeKafka()
    kafka.has_sessions = has_sessions
    for topic in ("a", "b"):
        kafka.create(topic)
    async with reading_from(kafka) as reader:
        a, b = reader.read("a", 0, 0), reader.read("b", 0, 0)
        for turn in range(5):
            for topic, one in (("a", a), ("b", b)):
                fill(kafka, topic, 2)
                assert await values(one, 2) == numbered(2 * turn, 2 * turn + 2)
            kafka.sessions.clear()
            await asyncio.sleep(0.7)


@pytest.mark.parametrize("after_s", [0.0, 0.001, 0.003, 0.01, 0.06, 0.3, 3.0])
@virtual_time
async def test_a_broken_connection_repeats_each_record_once(after_s: float) -> None:
    """However many connections broke with it, and whatever is read while they are made again."""
    kafka = FakeKafka()
    kafka.create("t")
    async with reading_from(kafka) as reader:
        one = reader.read("t", 0, 0)
        found: list[tuple[int, bytes]] = []
        for turn in range(12):
            if turn % 4 == 2:
                kafka.cut(1)
                await asyncio.sleep(after_s)
            fill(kafka, "t", 1)
            while (turn, b"%d" % turn) not in found:
                found += await values(one, 1)
        await asyncio.sleep(10)
        found += await one.take(0.0, MOST)

    assert sorted(set(found)) == numbered(0, 12)
    assert len(found) <= 12 + 3
