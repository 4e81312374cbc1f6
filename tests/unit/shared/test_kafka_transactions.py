"""Transactions over shared connections: each whole or not at all, whatever the brokers answer."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator

import pytest
from aiokafka.protocol.produce import ProduceRequest

from shared.errors import KafkaUnavailable
from shared.kafka.cluster import Cluster
from shared.kafka.transactional import (
    BATCH_BYTES,
    ENCODED_AT_ONCE,
    GroupOffset,
    ProducerFenced,
    TransactionalWriter,
)
from shared.kafka.wire.transactions import (
    AddOffsets,
    AddPartitions,
    CommitOffset,
    EndTransaction,
    FindCoordinators,
    InitProducerId,
)
from tests.fakes.kafka_transactions import TransactionalKafka
from tests.fakes.virtual_time import virtual_time

GROUP = "g"
A, B = ("a", 0), ("b", 0)
STEPS = [AddPartitions, ProduceRequest, AddOffsets, CommitOffset, EndTransaction]
PASSING = {
    AddPartitions: [14, 15, 16, 51],
    ProduceRequest: [3, 5, 6, 7, 19, 20],
    AddOffsets: [14, 15, 16, 51],
    CommitOffset: [14, 15, 16],
    EndTransaction: [14, 15, 16, 51],
}
FATAL = [1, 10, 22, 29, 45, 48, 49, 53, 99]
FENCED = [47, 90]


@contextlib.asynccontextmanager
async def writing() -> AsyncIterator[tuple[TransactionalKafka, Cluster]]:
    kafka = TransactionalKafka()
    for topic, number in (A, B):
        kafka.create(topic, number)
    cluster = Cluster("fake:1", kafka.connect)
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
    async with asyncio.timeout(10):
        await writer.add([A, B])
        await writer.write(A, [(None, value)])
        await writer.write(B, [(b"k", value)])
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


@virtual_time
async def test_many_writers_share_a_bounded_number_of_connections() -> None:
    """288 transactional ids, one after the other and all at once."""
    async with writing() as (kafka, cluster):
        writers = await asyncio.gather(*(opened(cluster, f"w{n}") for n in range(288)))
        await asyncio.gather(*(transact(writer, b"%d" % n) for n, writer in enumerate(writers)))

        assert sorted(kafka.values("a"), key=int) == [b"%d" % n for n in range(288)]
        assert len(kafka.connections) <= 8


@pytest.mark.parametrize(("step", "code"), [(step, code) for step in STEPS for code in PASSING[step]])
@virtual_time
async def test_a_passing_error_is_retried(step: type, code: int) -> None:
    """A coordinator that loads or moves, a leader that moves, replicas that are missing: it goes on."""
    async with writing() as (kafka, cluster):
        writer = await opened(cluster)
        kafka.refuse(step, code, code)
        await transact(writer, b"1")

        assert seen(kafka) == ([b"1"], [b"1"], 1)


@pytest.mark.parametrize("code", [*FATAL, *FENCED])
@pytest.mark.parametrize("step", STEPS)
@virtual_time
async def test_any_other_error_ends_the_transaction_without_a_trace(step: type, code: int) -> None:
    """It is reported, as fenced or as unknown, and the next writer of this id aborts what there is."""
    async with writing() as (kafka, cluster):
        writer = await opened(cluster)
        await transact(writer, b"1")
        kafka.refuse(step, code)
        with pytest.raises(ProducerFenced if code in FENCED else KafkaUnavailable):
            await transact(writer, b"2")
        await transact(await opened(cluster), b"3")

        assert seen(kafka) == ([b"1", b"3"], [b"1", b"3"], 3)


@pytest.mark.parametrize("step", STEPS)
@virtual_time
async def test_a_lost_answer_leaves_a_whole_transaction_or_none(step: type) -> None:
    """Only if it was the answer to the end, the transaction may have succeeded."""
    async with writing() as (kafka, cluster):
        writer = await opened(cluster)
        kafka.swallowed.add(step)
        with pytest.raises((KafkaUnavailable, ProducerFenced)):
            await transact(writer, b"2")
        await transact(await opened(cluster), b"3")

        both = [b"2", b"3"] if step is EndTransaction else [b"3"]
        assert seen(kafka) == (both, both, 3)


@pytest.mark.parametrize("steps", range(5))
@virtual_time
async def test_a_new_writer_fences_the_old_one_at_any_step(steps: int) -> None:
    """What the old one has not ended is aborted, and each further step of it is refused."""
    async with writing() as (kafka, cluster):
        old = await opened(cluster)
        todo: list[Callable[[], Coroutine[None, None, object]]] = [
            lambda: old.add([A, B]),
            lambda: old.write(A, [(None, b"2")]),
            lambda: old.write(B, [(None, b"2")]),
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
async def test_opening_waits_for_the_coordinator() -> None:
    """It may be away, load its state, or still end the transaction of the writer before."""
    async with writing() as (kafka, cluster):
        kafka.refuse(FindCoordinators, 15, 14)
        kafka.refuse(InitProducerId, 14, 16, 51)
        await transact(await opened(cluster), b"1")

        assert seen(kafka) == ([b"1"], [b"1"], 1)


@pytest.mark.parametrize("size", [10, BATCH_BYTES // 3, 2 * BATCH_BYTES])
@virtual_time
async def test_a_large_write_is_split_into_batches_in_order(size: int) -> None:
    """Records larger than a batch have one of their own; other tasks run while many are encoded."""
    count = 5 * ENCODED_AT_ONCE if size == 10 else 20
    encoded = 0

    def records() -> Iterator[tuple[bytes, bytes]]:
        nonlocal encoded
        for encoded in range(1, count + 1):
            yield b"k", b"%d" % encoded + b"x" * size

    async with writing() as (kafka, cluster):
        writer = await opened(cluster)
        await writer.add([A])
        task = asyncio.create_task(writer.write(A, records()))
        at_turn = [0]
        for _ in range(20):  # turns of the loop, before time passes
            await asyncio.sleep(0)
            at_turn.append(encoded)
        offsets = await task
        await writer.commit_offset(GroupOffset(group=GROUP, partition=A, offset=0, metadata=""))
        await writer.end(is_commit=True)

        assert offsets == list(range(count))
        assert kafka.values("a") == [value for _, value in records()]
        assert max(after - before for before, after in itertools.pairwise(at_turn)) <= ENCODED_AT_ONCE
