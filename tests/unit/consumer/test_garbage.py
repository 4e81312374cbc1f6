"""Garbage collections stay short: the oldest generation is collected only while little is open."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
from pathlib import Path

import pytest

from services.consumer.member import garbage
from tests.fakes.virtual_time import virtual_time
from tests.unit.consumer.group_world import GroupWorld
from tests.unit.consumer.stream_world import LONG

ROOT = Path(__file__).parents[3]
MANY = """
import gc
from services.consumer.core.sessions.state import OpenSession
from services.consumer.member.garbage import YOUNG, keep_collections_short
keep_collections_short()
looked_at = []
def note(phase, info):
    if phase == "start":
        looked_at.append(sum(len(gc.get_objects(n)) for n in range(info["generation"] + 1)))
gc.callbacks.append(note)
sessions = [OpenSession(str(n), n, 0, 0, 0, 0) for n in range(5 * YOUNG)]
print(len(looked_at) > 5, max(looked_at) <= 4 * YOUNG)
"""


def test_no_collection_looks_at_all_open_sessions() -> None:
    """However many there are, each one looks at a bounded number of young objects."""
    done = subprocess.run(
        [sys.executable, "-c", MANY], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout.split() == ["True", "True"]


@pytest.mark.parametrize(("few", "collections"), [(0, 0), (1_000, 10)])
@virtual_time
async def test_everything_is_collected_only_while_little_is_open(
    few: int, collections: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once a minute, by the number of objects that the streams' sessions consist of."""
    found: list[int] = []
    monkeypatch.setattr(garbage, "FEW", few)
    monkeypatch.setattr(gc, "collect", lambda: found.append(1))
    world = GroupWorld(LONG, 1)
    joined = await world.join("a")
    await world.settled()
    world.emit("k")
    await world.committed()
    tidying = asyncio.create_task(garbage.collect_when_small(lambda: garbage.count_objects([joined.member])))

    await asyncio.sleep(10.5 * garbage.COLLECT_EVERY_S)
    tidying.cancel()
    await world.end()

    assert len(found) == collections
