"""The producer's stream table while its znode cannot be read."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from services.producer.registration import Registration
from services.producer.settings import ProducerSettings
from shared.errors import KafkaUnavailable, Unavailable
from shared.kafka.admin.append_times import TimesNotOfBroker
from shared.model.routing import StreamTable, initial_table
from shared.zookeeper import stream_table
from shared.zookeeper.stream_table import wait_for_table
from tests.fakes.coordinator import InMemoryZooKeeper, ZnodeStore
from tests.fakes.virtual_time import until, virtual_time

SETTINGS = ProducerSettings(streams=2, producer="p1")
NAMES = SETTINGS.names
DAMAGES = [b"", b"{", b"\xff", b'{"version":1,"streams":{}}', b'{"x":' + b"[" * 100_000]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> ZnodeStore:
    """A ZooKeeper, beside a Kafka that has every topic."""

    async def exist(*_: Any) -> None:
        pass

    async def listed(_: str) -> list[str]:
        return []

    monkeypatch.setattr("services.producer.registration.ensure_topics", exist)
    monkeypatch.setattr("services.producer.registration.check_append_times", exist)
    monkeypatch.setattr(stream_table, "ensure_topics", exist)
    monkeypatch.setattr(stream_table, "list_topics", listed)
    return ZnodeStore()


def write(store: ZnodeStore, data: bytes) -> None:
    """Overwrites the table; watches fire."""
    old = store.znodes[NAMES.table]
    store.znodes[NAMES.table] = replace(old, data=data, version=old.version + 1)
    for watch in store.watches.pop(NAMES.table, ()):
        watch(NAMES.table)


@pytest.mark.parametrize("data", DAMAGES)
async def test_the_last_good_table_stays(
    store: ZnodeStore, caplog: pytest.LogCaptureFixture, data: bytes
) -> None:
    """The producer routes by it and stays registered; a readable table is used at once."""
    tables: list[StreamTable] = []
    registration = Registration(InMemoryZooKeeper(store), SETTINGS, tables.append)
    await registration.step()

    write(store, data)
    for _ in range(3):
        await registration.step()
    during = registration.table, registration.complaint(), registration.unreadable_znodes
    del store.znodes[NAMES.producer("p1")]
    await registration.step()
    moved = StreamTable(version=2, owner_of=tuple(1 - owner for owner in initial_table(2).owner_of))
    write(store, moved.encode())
    await registration.step()

    assert during == (initial_table(2), "", 1)
    assert [record.message for record in caplog.records].count("znode unreadable") == 1
    assert NAMES.producer("p1") in store.znodes
    assert (tables, registration.unreadable_znodes) == ([initial_table(2), moved], 0)


@pytest.mark.parametrize("data", DAMAGES)
async def test_a_producer_without_a_good_table_waits(store: ZnodeStore, data: bytes) -> None:
    """It starts with an unreadable table: it rejects fragments, says why, and overwrites nothing."""
    client = InMemoryZooKeeper(store)
    await client.make_path(NAMES.root)
    await client.create(NAMES.table, data)
    registration = Registration(client, SETTINGS, lambda table: None)

    with pytest.raises(Unavailable, match="unreadable"):
        await registration.step()
    before = registration.table, store.znodes[NAMES.table].data
    write(store, initial_table(2).encode())
    await registration.step()

    assert before == (None, data)
    assert registration.table == initial_table(2)


async def test_topics_without_the_brokers_time_are_refused_at_once_and_later(
    store: ZnodeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no table then, neither in ZooKeeper nor to route by; once topics are right, there is one."""
    faults: list[KafkaUnavailable] = [TimesNotOfBroker("fragments.0000 has CreateTime")]

    async def check(*_: Any) -> None:
        for fault in faults:
            raise fault

    monkeypatch.setattr("services.producer.registration.check_append_times", check)
    monkeypatch.setattr("services.producer.registration.CLOCK_S", 0.0)
    registration = Registration(InMemoryZooKeeper(store), SETTINGS, lambda table: None)

    with pytest.raises(TimesNotOfBroker):
        await registration.step()
    at_first = NAMES.table in store.znodes
    faults[:], wrong = [], faults[:]
    await registration.step()
    right = registration.table
    faults[:] = wrong
    with pytest.raises(TimesNotOfBroker):
        await registration.step()
    refused = registration.table
    faults[:] = [KafkaUnavailable("Kafka does not answer")]
    with pytest.raises(KafkaUnavailable):
        await registration.step()
    faults.clear()
    await registration.step()
    faults[:] = [KafkaUnavailable("Kafka does not answer")]
    await registration.step()

    assert not at_first
    assert (right, refused, registration.table) == (initial_table(2), None, initial_table(2))


@virtual_time
async def test_a_consumer_waits_for_a_readable_table() -> None:
    """It has no last good one when it starts."""
    store = ZnodeStore()
    client = InMemoryZooKeeper(store)
    await client.make_path(NAMES.root)
    await client.create(NAMES.table, b"{")
    waiting = asyncio.create_task(wait_for_table(client, NAMES))

    await asyncio.sleep(60)
    before = waiting.done()
    write(store, initial_table(2).encode())
    await until(waiting.done)

    assert not before
    assert waiting.result() == initial_table(2)
