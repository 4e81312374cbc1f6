"""Streams whose owner leaves, whose ZooKeeper is reset, or whose log is cut."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import time
from pathlib import Path

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import RecordsToDelete

from services.consumer.member.status import stream_status
from shared.kafka.topics import admin_client, ensure_topics, fragments_topics
from shared.zookeeper.connection import ZooKeeper
from shared.zookeeper.stream_table import ensure_table
from tests.e2e.fleet import Visits
from tests.e2e.readers import judge
from tests.e2e.service import CHECKOUT, poll
from tests.integration.consumers import SETTINGS, Group, group
from tests.servers import free_port


async def judged(found: Group) -> list[str]:
    """The faults in what the group has delivered; empty if there are none."""
    return await judge(found.fleet.where, SETTINGS, await found.fleet.where.delivered())


async def delete_below(found: Group, stream: int, offset: int) -> None:
    """Removes a fragments topic's records below the offset, as retention does."""
    where = found.fleet.where
    async with admin_client(where.kafka) as admin:
        partition = TopicPartition(where.names.fragments(stream), 0)
        await admin.delete_records({partition: RecordsToDelete(before_offset=offset)})


async def delete_tree(znodes: ZooKeeper, path: str) -> None:
    """Deletes the znode and everything below it."""
    for child in await znodes.children(path):
        await delete_tree(znodes, f"{path}/{child}")
    await znodes.delete(path)


async def emit(found: Group, stream: int, value: bytes, key: bytes = b"k") -> int:
    """Appends a record to a stream and returns its offset."""
    where = found.fleet.where
    async with AIOKafkaProducer(bootstrap_servers=where.kafka) as producer:
        sent = await producer.send_and_wait(where.names.fragments(stream), value=value, key=key, partition=0)
    offset: int = sent.offset
    return offset


async def test_an_orderly_stop_hands_over_at_once(
    kafka: str, zookeeper: str, namespace: str, tmp_path: Path
) -> None:
    """The other member reads the streams long before a ZooKeeper session could time out."""
    visits = Visits(random.Random(1))
    async with group(kafka, zookeeper, namespace, tmp_path, streams=6) as found:
        a, b = await found.join("a"), await found.join("b")
        await found.until(lambda: len(a.running) == len(b.running) == 3)
        await found.fleet.write(visits, 1000)
        epochs = {worker.stream: worker.epoch for worker in a.member.workers}

        begun_s = time.monotonic()
        a.stop.set()
        await found.until(lambda: set(b.running) >= epochs.keys())
        took_s = time.monotonic() - begun_s

        assert took_s < 2.0
        assert {stream: b.worker(stream).epoch for stream in epochs} == {
            stream: epoch + 1 for stream, epoch in epochs.items()
        }
        await found.fleet.write(visits, 500)
        await found.fleet.close_all()
        await found.end()
        assert await judged(found) == []


async def test_streams_survive_a_reset_of_zookeeper(
    kafka: str, zookeeper: str, namespace: str, tmp_path: Path
) -> None:
    """The topics restore the number of streams, epochs rise above the heads', and no session is doubled."""
    visits = Visits(random.Random(2))
    async with group(kafka, zookeeper, namespace, tmp_path) as found:
        where = found.fleet.where
        for name in ("a", "b", "c"):
            one = await found.join(name)
            await found.until(lambda one=one: one.running == [0, 1])  # type: ignore[misc]
            await found.fleet.write(visits, 300)
            await found.until(lambda one=one: all(w.seq for w in one.member.workers))  # type: ignore[misc]
            await found.end()
        before = await where.heads()
        async with ZooKeeper(zookeeper, 6.0) as znodes:
            await delete_tree(znodes, where.names.root)
            table = await ensure_table(
                znodes,
                where.names,
                kafka=kafka,
                streams=None,
                default_streams=7,
                retention_ms=3_600_000,
                replication=1,
            )

        one = await found.join("d")
        await found.until(lambda: one.running == [0, 1])
        await found.fleet.write(visits, 300)
        await found.fleet.close_all()
        epochs = [worker.epoch for worker in one.member.workers]
        await found.end()

        assert table.count == 2
        assert epochs == [before[stream].epoch + 1 for stream in (0, 1)]
        assert await judged(found) == []


async def test_unread_records_removed_by_retention_are_counted(
    kafka: str, zookeeper: str, namespace: str, tmp_path: Path
) -> None:
    """The log starts above the position: the owner reads from there, and its status counts what is gone."""
    async with group(kafka, zookeeper, namespace, tmp_path, streams=1) as found:
        for n in range(8):
            await emit(found, 0, b'{"key":"k","id":"%d"}' % n)
        await delete_below(found, 0, 5)

        one = await found.join("a")
        await found.until(lambda: one.running == [0] and one.worker(0).position == 8)
        row = stream_status(one.worker(0))
        await found.fleet.close_all()
        await found.end()

        (session,) = await found.fleet.where.delivered()
        assert row["cut"] == 5
        assert (session.first_offset, session.fragments) == (5, 3)


async def test_a_lost_log_stops_the_stream(
    kafka: str, zookeeper: str, namespace: str, tmp_path: Path
) -> None:
    """The new topic ends below the position: state `rewind`, and no more writes; other streams continue."""
    async with group(kafka, zookeeper, namespace, tmp_path) as found:
        where = found.fleet.where
        one = await found.join("a")
        for stream in (0, 1):
            for _ in range(5):
                await emit(found, stream, b'{"key":"k","end":true}')
        await found.until(lambda: [worker.position for worker in one.member.workers] == [5, 5])
        await found.end()
        topic = where.names.fragments(0)
        async with admin_client(kafka) as admin:
            await admin.delete_topics([topic])

        async def is_created() -> bool:
            return bool(await ensure_topics(kafka, fragments_topics(where.names, 1, 3_600_000), 1))

        await poll(is_created, lambda: f"{topic} could not be created again")

        two = await found.join("b")
        await found.until(lambda: [w.state for w in two.member.workers] == ["rewind", "running"])
        await emit(found, 0, b'{"key":"k","end":true}')
        await emit(found, 1, b'{"key":"k","end":true}')
        await found.until(lambda: two.worker(1).seq is not None and two.worker(1).position == 6)
        await asyncio.sleep(1)
        row = stream_status(two.worker(0))
        await found.end()

        delivered = [session.stream for session in await where.delivered()]
        assert (row["state"], row["position"]) == ("rewind", 5)
        assert sorted(delivered) == [0] * 5 + [1] * 6


async def test_unreadable_records_are_skipped_and_counted(
    kafka: str, zookeeper: str, namespace: str, tmp_path: Path
) -> None:
    """No record stops its stream, and the head counts the unreadable ones."""
    async with group(kafka, zookeeper, namespace, tmp_path, streams=1) as found:
        await emit(found, 0, b'{"key":"k"}')
        for value in (b"", b"\xff\xfe", b"[]", b'{"key":5}', b'{"key":"other"}', b'{"key":"k","time":-1}'):
            await emit(found, 0, value)
        await emit(found, 0, b'{"key":"k","end":true}')

        one = await found.join("a")
        await found.until(lambda: one.running == [0] and one.worker(0).position == 8)
        await found.end()

        heads = await found.fleet.where.heads()
        (session,) = await found.fleet.where.delivered()
        assert heads[0].counts.unreadable == 6
        assert session.fragments == 2


async def test_a_member_with_other_settings_refuses_to_start(
    kafka: str, zookeeper: str, namespace: str, tmp_path: Path
) -> None:
    """It prints a sentence that names each difference, and exits with code 1."""
    async with group(kafka, zookeeper, namespace, tmp_path, streams=1) as found:
        one = await found.join("a")
        await found.until(lambda: one.running == [0])
        own = {"BATON_MEMBER": "b", "BATON_GAP_MS": "5", "BATON_PORT": str(free_port())}
        process = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "services.consumer"],
            cwd=CHECKOUT,
            env=os.environ | found.fleet.environment | own,
            capture_output=True,
            timeout=60,
        )
        await found.end()

        sentence = process.stderr.decode().strip().splitlines()[-1]
        assert process.returncode == 1
        assert "other settings" in sentence
        assert "gap_ms: 5 / 60000" in sentence
