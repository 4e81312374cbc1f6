"""Streams whose owner leaves, or whose log is cut or lost, and a member that may not join."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from pathlib import Path

from services.consumer.member.status import stream_status
from shared.kafka.admin.topics import ensure_topics, fragments_topics
from tests.e2e.readers import judge
from tests.e2e.service import CHECKOUT
from tests.e2e.visits import Visits
from tests.integration.consumers import SETTINGS, Group, group
from tests.servers import free_port
from tests.topics import admin_client, appending, delete_below
from tests.waiting import until


async def judged(found: Group) -> list[str]:
    """The faults in what the group has delivered; empty if there are none."""
    return await judge(found.fleet.where, SETTINGS, await found.fleet.where.delivered())


async def emit(found: Group, stream: int, value: bytes) -> int:
    """Appends a record to a stream and returns its offset."""
    async with appending(found.fleet.where.kafka, found.fleet.where.names) as append:
        return await append(stream, b"k", value)


async def test_an_orderly_stop_hands_over_at_once(
    kafka: str, zookeeper: str, namespace: str, tmp_path: Path
) -> None:
    """The other member claims each stream once, and reads on."""
    visits = Visits(random.Random(1))
    async with group(kafka, zookeeper, namespace, tmp_path, streams=6) as found:
        a, b = await found.join("a"), await found.join("b")
        await found.until(lambda: len(a.running) == len(b.running) == 3)
        await found.fleet.write(visits, 1000)
        epochs = {worker.stream: worker.epoch for worker in a.member.workers}

        a.stop.set()
        await found.until(lambda: set(b.running) >= epochs.keys())

        assert {stream: b.worker(stream).epoch for stream in epochs} == {
            stream: epoch + 1 for stream, epoch in epochs.items()
        }
        await found.fleet.write(visits, 500)
        await found.fleet.close_all()
        await found.end()
        assert await judged(found) == []


async def test_unread_records_removed_by_retention_are_counted(
    kafka: str, zookeeper: str, namespace: str, tmp_path: Path
) -> None:
    """The log starts above the position: the owner reads from there, and its status counts what is gone."""
    async with group(kafka, zookeeper, namespace, tmp_path, streams=1) as found:
        for n in range(8):
            await emit(found, 0, b'{"key":"k","id":"%d"}' % n)
        await delete_below(kafka, found.fleet.where.names.fragments(0), 5)

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

        await until(is_created, lambda: f"{topic} could not be created again")

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
