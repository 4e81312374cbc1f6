"""What must not grow with the number of streams or members (docs/operations.md)."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from services.consumer.member.effects import Pace
from services.consumer.stream.watchdog import ReaderWatchdog
from tests.fakes.log import InMemoryLog, StoredStream
from tests.fakes.virtual_time import until, virtual_time
from tests.unit.consumer.group_world import GroupWorld
from tests.unit.consumer.stream_world import LONG, StreamWorld

ROOT = Path(__file__).parents[3]
STREAMS = 288
AT_START = """
import asyncio, resource, sys
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
from services.consumer.settings import ConsumerSettings
from shared.service.runtime import main
async def serve(settings, stop):
    print(resource.getrlimit(resource.RLIMIT_NOFILE)[0] == hard)
sys.exit(main("consumer", ConsumerSettings, serve))
"""


@virtual_time
async def test_the_watchdog_asks_only_about_its_own_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 288 streams and 4 members, three quarters of the answer would be about others' streams."""
    world = StreamWorld()
    worker, ended = world.start()
    await until(lambda: worker.state == "running")
    asked = set()
    stored = InMemoryLog.stored

    def note(self: InMemoryLog, stream: int) -> StoredStream:
        asked.add(stream)
        return stored(self, stream)

    watchdog = ReaderWatchdog(world.log, lambda: [worker], world.context.now_s)
    monkeypatch.setattr(InMemoryLog, "stored", note)
    await watchdog.step()
    ended.cancel()

    assert asked == {0}


def test_a_service_raises_its_limit_of_open_files() -> None:
    """A producer accepts 4,096 connections; the usual soft limit of 1,024 would allow some 700."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "BATON_MEMBER": "a"}
    done = subprocess.run(
        [sys.executable, "-c", AT_START],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert done.stdout.strip() == "True"


@virtual_time
async def test_the_members_of_a_group_share_one_bound_of_transactions() -> None:
    """Twice the members must not mean twice the transactions for the same brokers."""
    world = GroupWorld(LONG, 12)
    world.pace = Pace(commits_per_s=2.0)
    for name in "abcd":
        await world.join(name)
    await world.settled()
    feeding = asyncio.create_task(feed(world))
    await asyncio.sleep(30)
    before = world.broker.commits
    await asyncio.sleep(60)
    commits = world.broker.commits - before
    feeding.cancel()
    await world.end()

    assert commits <= 60 * world.pace.commits_per_s * 1.1


async def feed(world: GroupWorld) -> None:
    """Something to commit in every stream, all the time."""
    while True:
        for stream in range(world.count):
            world.emit("k", stream=stream)
        await asyncio.sleep(0.1)
