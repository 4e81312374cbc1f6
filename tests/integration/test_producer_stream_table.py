"""The stream table on real servers: the first process creates it, once, after its topics."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec
import pytest

from services.producer.registration import Registration
from services.producer.settings import ProducerSettings
from shared.kafka.admin.topics import ensure_topics, fragments_topics, list_topics
from shared.model.cluster import ProducerNode
from shared.model.names import Names
from shared.model.routing import StreamTable, initial_table
from shared.zookeeper.connection import ZooKeeper
from shared.zookeeper.stream_table import (
    WrongNumberOfStreams,
    count_of,
    ensure_table,
    read_table,
    wait_for_table,
)
from tests.waiting import running, until


@pytest.fixture
async def znodes(zookeeper: str) -> AsyncIterator[ZooKeeper]:
    async with ZooKeeper(zookeeper, 4.0) as client:
        yield client


async def ensure(znodes: ZooKeeper, kafka: str, namespace: str, streams: int | None) -> StreamTable:
    return await ensure_table(
        znodes,
        Names(namespace),
        kafka=kafka,
        streams=streams,
        default_streams=24,
        retention_ms=3_600_000,
        replication=1,
    )


async def until_listed(kafka: str, namespace: str, streams: int) -> None:
    """Waits until the broker lists these topics at least: it acknowledges new ones a moment before."""

    async def are_listed() -> bool:
        return count_of(Names(namespace), await list_topics(kafka)) >= streams

    await until(are_listed, lambda: f"the topics of {streams} streams are not there")


@pytest.mark.parametrize("numbers", [[7] * 5, [3, 5, 3, 5]], ids=["one number", "different numbers"])
async def test_racing_producers_create_one_table(
    kafka: str, zookeeper: str, znodes: ZooKeeper, namespace: str, numbers: list[int]
) -> None:
    """It is written once, and its topics exist; producers that ask for another number get an error."""
    async with contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(ZooKeeper(zookeeper, 4.0)) for _ in numbers]

        outcomes = await asyncio.gather(
            *(ensure(client, kafka, namespace, n) for client, n in zip(clients, numbers, strict=True)),
            return_exceptions=True,
        )

    stored = await znodes.get(Names(namespace).table)
    table = await read_table(znodes, Names(namespace))
    assert stored is not None
    assert table is not None
    assert (stored.data, stored.version) == (initial_table(table.count).encode(), 0)
    await until_listed(kafka, namespace, table.count)
    for number, outcome in zip(numbers, outcomes, strict=True):
        if number == table.count:
            assert outcome == table
        else:
            assert isinstance(outcome, WrongNumberOfStreams)


async def test_another_number_than_stored_is_an_error(kafka: str, znodes: ZooKeeper, namespace: str) -> None:
    """The stored number decides; a producer without a number uses it."""
    await ensure(znodes, kafka, namespace, 3)

    with pytest.raises(WrongNumberOfStreams, match=r"4 streams are asked for .* has 3; "):
        await ensure(znodes, kafka, namespace, 4)
    assert await ensure(znodes, kafka, namespace, None) == initial_table(3)


async def test_without_a_table_the_topics_fix_the_number(
    kafka: str, znodes: ZooKeeper, namespace: str
) -> None:
    """After a reset of ZooKeeper alone, the fragments topics in Kafka decide the number of streams."""
    names = Names(namespace)
    await ensure_topics(kafka, fragments_topics(names, 5, 3_600_000), 1)
    await until_listed(kafka, namespace, 5)

    with pytest.raises(WrongNumberOfStreams, match=r"24 streams are asked for .* fix 5 streams"):
        await ensure(znodes, kafka, namespace, 24)
    nothing_yet = await read_table(znodes, names)
    table = await ensure(znodes, kafka, namespace, None)

    assert nothing_yet is None
    assert table == initial_table(5)


async def test_without_table_and_topics_there_is_a_default(
    kafka: str, znodes: ZooKeeper, namespace: str
) -> None:
    """The very first producer creates 24 streams if it has no number."""
    assert (await ensure(znodes, kafka, namespace, None)).count == 24


async def test_others_wait_for_the_table(kafka: str, znodes: ZooKeeper, namespace: str) -> None:
    """wait_for_table returns the first producer's table as soon as it is there."""
    waiting = asyncio.create_task(wait_for_table(znodes, Names(namespace)))

    made = await ensure(znodes, kafka, namespace, 2)

    assert await asyncio.wait_for(waiting, 10) == made


async def test_a_producer_registers_again_in_a_new_session(
    kafka: str, zookeeper: str, znodes: ZooKeeper, namespace: str
) -> None:
    """Its znode is ephemeral; that of an earlier ZooKeeper session is replaced, not adopted."""
    settings = ProducerSettings(
        kafka=kafka, zookeeper=zookeeper, namespace=namespace, streams=2, producer="p1"
    )
    path = settings.names.producer("p1")
    tables: list[StreamTable] = []
    earlier = ZooKeeper(zookeeper, 4.0)
    await earlier.connect(30.0)
    await Registration(earlier, settings, tables.append).step()
    before = await znodes.get(path)

    later = ZooKeeper(zookeeper, 4.0)
    await later.connect(30.0)
    registration = Registration(later, settings, tables.append)
    await registration.step()
    await registration.step()
    after = await znodes.get(path)
    await earlier.close()
    still = await znodes.get(path)
    await later.close()
    gone = await znodes.get(path)

    assert before is not None
    assert after is not None
    assert before.ephemeral_of != after.ephemeral_of
    assert still == after
    assert gone is None
    entry = msgspec.json.decode(after.data, type=ProducerNode)
    assert entry.address == settings.address
    assert tables == [initial_table(2), initial_table(2)]


async def test_a_changed_table_is_seen(kafka: str, zookeeper: str, znodes: ZooKeeper, namespace: str) -> None:
    """A new table is used at once; a deleted one is created again with the same number of streams."""
    settings = ProducerSettings(kafka=kafka, zookeeper=zookeeper, namespace=namespace, streams=2)
    tables: asyncio.Queue[StreamTable] = asyncio.Queue()
    registration = Registration(znodes, settings, tables.put_nowait)
    async with running(registration.run()):
        first = await asyncio.wait_for(tables.get(), 30)
        moved = StreamTable(version=2, owner_of=tuple(1 - owner for owner in first.owner_of))

        await znodes.set(settings.names.table, moved.encode())
        second = await asyncio.wait_for(tables.get(), 30)
        await znodes.delete(settings.names.table)
        third = await asyncio.wait_for(tables.get(), 30)

    assert (first, second) == (initial_table(2), moved)
    assert third.count == 2
