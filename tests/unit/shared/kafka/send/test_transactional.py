"""Transactions over shared connections: each whole or not at all, whatever the brokers answer."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path

import pytest

from shared.errors import KafkaUnavailable
from shared.kafka.connect.cluster import Cluster
from shared.kafka.record import Record
from shared.kafka.send.transactional import (
    BATCH_BYTES,
    TAKEN_AT_ONCE,
    GroupOffset,
    ProducerFenced,
    TransactionalWriter,
)
from shared.kafka.wire.produce import ProduceRequest
from shared.kafka.wire.transactions import (
    AddOffsets,
    AddPartitions,
    CommitOffset,
    EndTransaction,
    FindCoordinators,
    InitProducerId,
)
from tests.fakes.kafka import Accident
from tests.fakes.kafka_transactions import TransactionalKafka
from tests.fakes.virtual_time import virtual_time

GROUP = "g"
A, B = ("a", 0), ("b", 0)
STEPS = [AddPartitions, ProduceRequest, AddOffsets, CommitOffset, EndTransaction]
PAGE = Path(__file__).parents[5] / "docs" / "protocol.md"
SECTION = PAGE.read_text().partition("### Errors of transactions\n")[2].partition("\n#")[0]
TABLE = [line for line in SECTION.splitlines() if line.startswith("| ")][2:]
STEPS_OF: dict[str, Callable[[type], bool]] = {
    "all": lambda step: True,
    "all but finding": lambda step: step is not FindCoordinators,
    "all but appending": lambda step: step is not ProduceRequest,
    "all but finding and appending": lambda step: step not in (FindCoordinators, ProduceRequest),
    "appending": lambda step: step is ProduceRequest,
}
AWAITED, FENCED, UNKNOWN = "awaited", "fenced", "outcome unknown"
CODES = [-1, *range(1, 140)]
"""Every error code of Kafka, and some that it does not have yet."""


@contextlib.asynccontextmanager
async def writing(
    write_lanes: int = 3, brokers: int = 1
) -> AsyncIterator[tuple[TransactionalKafka, Cluster]]:
    kafka = TransactionalKafka(brokers)
    for topic, number in (A, B):
        kafka.create(topic, number)
    cluster = Cluster("fake:1", kafka.connect, write_lanes=write_lanes)
    try:
        yield kafka, cluster
    finally:
        await cluster.close()


async def opened(cluster: Cluster, name: str = "w") -> TransactionalWriter:
    writer = TransactionalWriter(cluster, name, timeout_ms=12_000)
    await writer.open()
    return writer


async def transact(writer: TransactionalWriter, value: bytes, *, is_commit: bool = True) -> None:
    """One transaction that writes the value to both partitions, and commits it as an offset."""
    async with asyncio.timeout(60):
        await writer.add([A, B])
        await writer.write(A, [(None, value, [])])
        await writer.write(B, [(b"k", value, [])])
        offset = GroupOffset(group=GROUP, partition=A, offset=int(value), metadata=f"m{int(value)}")
        await writer.commit_offset(offset)
        await writer.end(is_commit=is_commit)


def seen(kafka: TransactionalKafka) -> tuple[list[bytes], list[bytes], int]:
    """What readers see of both partitions, and the committed offset; -1 without one."""
    return kafka.values("a"), kafka.values("b"), kafka.committed.get((GROUP, A), (-1, ""))[0]


@virtual_time
async def test_a_commit_shows_all_of_it_and_an_abort_nothing() -> None:
    """Records and offset alike; the next transaction is not affected."""
    async with writing() as (kafka, cluster):
        writer = await opened(cluster)
        await transact(writer, b"1")
        await transact(writer, b"2", is_commit=False)
        await transact(writer, b"3")

        assert seen(kafka) == ([b"1", b"3"], [b"1", b"3"], 3)
        assert kafka.committed[GROUP, A] == (3, "m3")
        assert kafka.held["w"].timeout_ms == 12_000


@virtual_time
async def test_a_group_and_a_transaction_may_have_different_coordinators() -> None:
    """Each request goes to its own from the first on."""
    async with writing(brokers=3) as (kafka, cluster):
        kafka.coordinator, kafka.group_coordinator = 2, 3
        writer = await opened(cluster)
        await transact(writer, b"1")
        await transact(writer, b"2")
        assert kafka.astray == 0

        kafka.coordinator, kafka.group_coordinator = 3, 2
        await transact(writer, b"3")

        assert kafka.astray == 2
        assert seen(kafka) == ([b"1", b"2", b"3"], [b"1", b"2", b"3"], 3)


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("mute", "no answer to AddPartitions to broker 1 at fake:1"),
        ("busy", "the answer to AddPartitions to broker 1 at fake:1 is ConcurrentTransactions"),
        ("no leader", "a/0 has no leader"),
        ("no coordinator", "the coordinator of w is not found"),
    ],
)
@virtual_time
async def test_what_a_transaction_waits_for_is_named(how: str, expected: str) -> None:
    """An operator sees it when a commit takes too long."""
    async with writing() as (kafka, cluster):
        writer = await opened(cluster)
        if how == "no leader":
            kafka.partitions[A].leader = -1
        elif how == "busy":
            kafka.refuse(AddPartitions, *[51] * 1_000)
        elif how == "no coordinator":
            kafka.refuse(AddPartitions, 16)
            kafka.refuse(FindCoordinators, *[15] * 1_000)
        kafka.is_mute = how == "mute"
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(5):
                await transact(writer, b"1")

        assert writer.waits_for == expected


@virtual_time
async def test_the_number_after_the_largest_sequence_number_is_0() -> None:
    """A broker refuses any other."""
    async with writing() as (kafka, cluster):
        writer = await opened(cluster)
        await writer.add([A])
        writer._sequences[A] = kafka.held["w"].sequences[A] = 2**31 - 2
        for values in ([b"1", b"2"], [b"3", b"4"], [b"5"]):
            await writer.write(A, [(None, value, []) for value in values])
        await writer.end(is_commit=True)

        assert kafka.values("a") == [b"1", b"2", b"3", b"4", b"5"]


@pytest.mark.parametrize("lanes", [1, 3])
@virtual_time
async def test_many_writers_share_a_bounded_number_of_connections(lanes: int) -> None:
    """288 transactional ids, all at once; each uses one of the connections for writing."""
    async with writing(lanes) as (kafka, cluster):
        writers = await asyncio.gather(*(opened(cluster, f"w{n}") for n in range(288)))
        await asyncio.gather(*(transact(writer, b"%d" % n) for n, writer in enumerate(writers)))

        assert sorted(kafka.values("a"), key=int) == [b"%d" % n for n in range(288)]
        assert cluster.sockets == 1 + lanes  # one more for questions


@pytest.mark.parametrize("step", [FindCoordinators, InitProducerId, *STEPS])
@virtual_time
async def test_every_error_does_what_the_protocol_says(step: type) -> None:
    """The table in docs/protocol.md says which are awaited, and which end the transaction without a trace."""
    expected = {code: expected_of(code, step) for code in CODES}
    times = {AWAITED: 2, FENCED: 1, UNKNOWN: 1}
    found = {code: await outcome_of(code, step, times[outcome]) for code, outcome in expected.items()}

    assert found == expected


def expected_of(code: int, step: type) -> str:
    """What the table says about an error code in answer to this step."""
    for row in TABLE:
        codes, steps, doing = row.strip("|").split("|")[:3]
        named = {int(number) for number in re.findall(r"\b\d+\b", codes.partition(":")[0])}
        if (not named or code in named) and STEPS_OF[steps.strip()](step):
            return next((word for word in (FENCED, UNKNOWN) if f"**{word}**" in doing), AWAITED)
    raise AssertionError(f"the table has no row for {code} in answer to {step}")


async def outcome_of(code: int, step: type, times: int) -> str:
    """What a writer makes of an error code in answer to a step of its opening or transaction."""
    async with writing() as (kafka, cluster):
        await transact(await opened(cluster), b"1")
        kafka.refuse(step, *[code] * times)
        outcome = AWAITED
        try:
            await transact(await opened(cluster), b"2")
        except ProducerFenced:
            outcome = FENCED
        except KafkaUnavailable:
            outcome = UNKNOWN
        await transact(await opened(cluster), b"3")

        whole = [b"1", b"2", b"3"] if outcome == AWAITED else [b"1", b"3"]
        assert seen(kafka) == (whole, whole, 3)
        return outcome


@pytest.mark.parametrize(
    ("codes", "failure"),
    [((0, -1), KafkaUnavailable), ((51, 29), KafkaUnavailable), ((14, 90), ProducerFenced)],
)
@virtual_time
async def test_the_worst_error_of_an_answer_counts(codes: tuple[int, int], failure: type[Exception]) -> None:
    """Each partition has its own; a negative one, of an unknown error, is one too."""
    async with writing() as (kafka, cluster):
        writer = await opened(cluster)
        kafka.refuse(AddPartitions, codes)
        with pytest.raises(failure):
            await transact(writer, b"1")


@pytest.mark.parametrize("accident", ["cut before", "cut after", "mute"])
@pytest.mark.parametrize("step", [FindCoordinators, InitProducerId, *STEPS])
@virtual_time
async def test_a_missing_answer_leaves_a_whole_transaction_or_none(step: type, accident: Accident) -> None:
    """Only if it was the answer to the end, the transaction may have succeeded."""
    async with writing() as (kafka, cluster):
        writer = await opened(cluster)
        kafka.accidents[step].append(accident)
        try:
            if step in (FindCoordinators, InitProducerId):
                writer = await opened(cluster)
            await transact(writer, b"2")
            outcome = "whole"
        except KafkaUnavailable:
            outcome = "unknown"
        await transact(await opened(cluster), b"3")

        # any broker answers where the coordinator is, so another try finds it
        assert outcome == ("whole" if step is FindCoordinators else "unknown")
        is_there = outcome == "whole" or (step is EndTransaction and accident != "cut before")
        both = [b"2", b"3"] if is_there else [b"3"]
        assert seen(kafka) == (both, both, 3)


@virtual_time
async def test_the_next_writer_finds_what_a_dead_broker_led() -> None:
    """The broker's partitions, its coordinators, everything; nobody says so, it only answers no more."""
    async with writing(brokers=2) as (kafka, cluster):
        kafka.coordinator = 2
        for partition in kafka.partitions.values():
            partition.leader = 2
        await transact(await opened(cluster), b"1")
        kafka.brokers.remove(2)
        kafka.cut(2)
        kafka.coordinator = 1
        for partition in kafka.partitions.values():
            partition.leader, partition.epoch = 1, 1
        with contextlib.suppress(KafkaUnavailable):
            await transact(await opened(cluster), b"2")
        await transact(await opened(cluster), b"2")

        assert seen(kafka) == ([b"1", b"2"], [b"1", b"2"], 2)


@pytest.mark.parametrize("steps", range(5))
@virtual_time
async def test_a_new_writer_fences_the_old_one_at_any_step(steps: int) -> None:
    """What the old one has not ended is aborted, and each further step of it is refused."""
    async with writing() as (kafka, cluster):
        old = await opened(cluster)
        todo: list[Callable[[], Coroutine[None, None, object]]] = [
            lambda: old.add([A, B]),
            lambda: old.write(A, [(None, b"2", [])]),
            lambda: old.write(B, [(None, b"2", [])]),
            lambda: old.commit_offset(GroupOffset(group=GROUP, partition=A, offset=2, metadata="")),
            lambda: old.end(is_commit=True),
        ]
        for do in todo[:steps]:
            await do()
        new = await opened(cluster)
        for do in todo[steps:]:
            with pytest.raises(ProducerFenced):
                await do()
        await transact(new, b"3")

        assert seen(kafka) == ([b"3"], [b"3"], 3)


@virtual_time
async def test_a_record_keeps_all_its_parts() -> None:
    """Key, value and headers; a record may have none of them. It is as old as its call."""
    written: list[Record] = [(b"k", b"v", [("h", b"1"), ("h", b"2")]), (b"k", None, []), (None, b"", [])]
    async with writing() as (kafka, cluster):
        writer = await opened(cluster)
        await writer.add([A])
        began_s = time.time()
        await writer.write(A, written)
        await writer.end(is_commit=True)

        assert [(one.key, one.value, one.headers) for one in kafka.records("a")] == written
        for one in kafka.records("a"):
            assert int(began_s * 1_000) <= one.timestamp <= time.time() * 1_000


@pytest.mark.parametrize(
    ("part", "size", "batches"),
    [
        ("value", 10, [5 * TAKEN_AT_ONCE]),
        *((part, BATCH_BYTES // 3, [2] * 10) for part in ("key", "value", "header")),
        ("value", 2 * BATCH_BYTES, [1] * 20),
    ],
)
@virtual_time
async def test_a_large_write_is_split_into_batches_in_order(part: str, size: int, batches: list[int]) -> None:
    """Records larger than a batch have one of their own; other tasks run while many are encoded."""
    large, encoded = b"x" * size, 0

    def records() -> Iterator[Record]:
        nonlocal encoded
        for encoded in range(1, sum(batches) + 1):
            value = b"%d" % encoded
            yield (
                large if part == "key" else b"k",
                value + large if part == "value" else value,
                [("h", large)] if part == "header" else [],
            )

    async with writing() as (kafka, cluster):
        writer = await opened(cluster)
        await writer.add([A])
        began_s = asyncio.get_running_loop().time()
        task = asyncio.create_task(writer.write(A, records()))
        at_turn = [0]
        for _ in range(20):  # turns of the loop, before time passes
            await asyncio.sleep(0)
            at_turn.append(encoded)
        offsets = await task
        took_s = asyncio.get_running_loop().time() - began_s
        await writer.commit_offset(GroupOffset(group=GROUP, partition=A, offset=0, metadata=""))
        await writer.end(is_commit=True)

        assert offsets == list(range(sum(batches)))
        assert kafka.values("a") == [value for _, value, _ in records()]
        counts = [batch.last - batch.base + 1 for batch in kafka.partitions[A].batches]
        assert counts == [*batches, 1]  # the last one is the marker
        assert max(after - before for before, after in itertools.pairwise(at_turn)) <= TAKEN_AT_ONCE
        assert took_s < 0.5
