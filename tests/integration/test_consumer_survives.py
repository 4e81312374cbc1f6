"""One member survives a mute ZooKeeper, an expired session and retention; nothing is lost.

Chaos runs (`tests/e2e/test_chaos.py`) pause and kill Kafka and ZooKeeper under a whole group.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer

from services.consumer.adapters.kafka.source import KafkaFragmentReader
from services.consumer.core.sessions.record import Record
from services.consumer.stream import watchdog
from tests.e2e.readers import judge
from tests.e2e.visits import Visits
from tests.integration.consumers import SETTINGS, Group, group
from tests.servers import ZooKeeperServer
from tests.topics import delete_below

PAUSE_S = 4.0
"""Longer than a ZooKeeper session lives in these tests."""

TOO_MUCH = 1_000
TEN_KILOBYTES = b'{"key":"k","data":"' + b"x" * 10_000 + b'"}'
"""A thousand of these exceed what a reader prefetches."""


@pytest.fixture(autouse=True)
def short_time_outs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shortens the watchdog's time-outs: the same behaviour in less time."""
    monkeypatch.setattr(watchdog, "WATCH_EVERY_S", 0.5)
    monkeypatch.setattr(watchdog, "STALLED_S", 2.0)


async def begin(found: Group, visits: Visits) -> None:
    """Starts a member and waits until it runs all streams and has committed in each."""
    one = await found.join("a")
    await found.until(lambda: len(one.running) == found.fleet.where.streams)
    await found.fleet.write(visits, 500)
    await found.until(lambda: all(worker.seq for worker in one.member.workers))


async def finish(found: Group, visits: Visits) -> None:
    """Writes more fragments, closes all sessions, stops the member and checks what was delivered."""
    await found.fleet.write(visits, 500)
    await found.fleet.close_all()
    await found.end()
    assert await judge(found.fleet.where, SETTINGS, await found.fleet.where.delivered()) == []


async def test_a_member_pauses_while_zookeeper_is_mute(
    kafka: str, zookeeper_server: ZooKeeperServer, namespace: str, tmp_path: Path
) -> None:
    """Past its lease the member neither reads nor commits; afterwards it continues."""
    visits = Visits(random.Random(3))
    async with group(kafka, zookeeper_server.address, namespace, tmp_path) as found:
        await begin(found, visits)
        one = found.members[0]
        zookeeper_server.pause()
        await found.until(lambda: one.member.lease_ms == 0)
        positions = {worker.stream: worker.position for worker in one.member.workers}
        await found.fleet.write(visits, 500)
        await asyncio.sleep(PAUSE_S)
        later = {worker.stream: worker.seq for worker in one.member.workers}
        heads = await found.fleet.where.heads()
        zookeeper_server.resume()

        assert {stream: head.seq for stream, head in heads.items()} == later
        assert all(heads[stream].position <= position + 500 for stream, position in positions.items())
        await finish(found, visits)


async def test_a_member_survives_an_expired_zookeeper_session(
    kafka: str, zookeeper: str, namespace: str, tmp_path: Path
) -> None:
    """The member joins and claims again in a new session, and reads uncommitted records again."""
    visits = Visits(random.Random(5))
    async with group(kafka, zookeeper, namespace, tmp_path) as found:
        await begin(found, visits)
        one = found.members[0]
        before, epoch = one.session_id, one.worker(0).epoch
        await found.fleet.write(visits, 500)

        await one.expire()
        await found.until(lambda: one.running == [0, 1] and one.worker(0).epoch > epoch)

        assert one.session_id != before
        assert one.worker(0).epoch == epoch + 1
        await finish(found, visits)


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> set[object]:
    """Readers whose fetches never return."""
    found: set[object] = set()
    fetch = KafkaFragmentReader.fetch

    async def may_hang(self: KafkaFragmentReader, timeout_s: float) -> Sequence[Record]:
        while self in found:  # noqa: ASYNC110  the test changes a plain set
            await asyncio.sleep(0.05)
        return await fetch(self, timeout_s)

    monkeypatch.setattr(KafkaFragmentReader, "fetch", may_hang)
    return found


async def test_a_reader_overtaken_by_retention_continues_at_the_logs_start(
    kafka: str,
    zookeeper: str,
    namespace: str,
    tmp_path: Path,
    hanging: set[object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every fragment is in a session or counted as cut."""
    # another reader, opened meanwhile, would read what retention is about to delete
    monkeypatch.setattr(watchdog, "STALLED_S", 600.0)
    async with group(kafka, zookeeper, namespace, tmp_path, streams=1) as found:
        where = found.fleet.where
        one = await found.join("a")
        await found.until(lambda: one.running == [0])
        worker = one.worker(0)
        hanging.add(worker._reader)
        topic = where.names.fragments(0)
        async with AIOKafkaProducer(bootstrap_servers=kafka) as producer:
            for _ in range(TOO_MUCH):
                await producer.send(topic, value=TEN_KILOBYTES, key=b"k", partition=0)
            await producer.flush()
        await delete_below(kafka, topic, TOO_MUCH - 100)

        hanging.clear()
        await found.until(lambda: worker.position == TOO_MUCH)
        cut = worker.core.cut if worker.core is not None else 0
        await found.fleet.close_all()
        await found.end()

        assert 100 < cut <= TOO_MUCH - 100
        assert sum(session.fragments for session in await where.delivered()) == TOO_MUCH - cut
