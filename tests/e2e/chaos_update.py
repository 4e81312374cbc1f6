"""A rolling update under load: every service begins with an earlier commit's code, and ends with this one's.

Control is updated first, as CHANGELOG.md says, then the producer, then one consumer after the other: stopped
in order or killed, as the seed says, and started with the present code. Heads, checkpoints and requests
between members change on the way, so owners read what owners of the other version have written.
"""

from __future__ import annotations

import asyncio
import io
import random
import signal
import subprocess
import tarfile
from pathlib import Path

from tests.e2e.chaos import CATCH_UP_PER_S, Run
from tests.e2e.chaos_load import Load
from tests.e2e.chaos_world import World, chaos_world
from tests.e2e.service import CHECKOUT
from tests.waiting import until

PER_S = 250
FRAGMENTS = 12_000


def checkout_of(commit: str, folder: Path) -> bool:
    """Writes the files of a commit into the folder; False if this clone does not have the commit."""
    archive = subprocess.run(["git", "archive", commit], cwd=CHECKOUT, capture_output=True, check=False)
    if archive.returncode != 0:
        return False
    folder.mkdir()
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")
    return True


async def rolling_update(home: Path, seed: int, earlier: Path) -> None:
    """A whole run, judged like a chaos run; AssertionError when anything is wrong."""
    rng = random.Random(seed)
    async with chaos_world(home, 3, earlier) as world:
        load = Load(world.producer_url, seed, PER_S)
        run = Run(world, load, seed)
        async with asyncio.TaskGroup() as tasks:
            posting = tasks.create_task(load.run(), name="load")
            run.report(await run.until_at_work())
            world.checkout = CHECKOUT
            names = ["control", "producer", *(f"consumer-{index}" for index in world.consumers)]
            killed = rng.choice(names[2:])
            for name in names:
                how = signal.SIGKILL if name == killed else signal.SIGTERM
                await _update(world, name, how)
                run.struck[f"update by {how.name}"] = run.struck.get(f"update by {how.name}", 0) + 1
                run.report(f"{name} updated after {how.name}; {await run.until_at_work()}")
            load.finish(FRAGMENTS, CATCH_UP_PER_S)
            await until(posting.done, lambda: f"still posting: {load}\n{world.tail()}")
        await run.settle()
        wrong = await run.judge(FRAGMENTS)
        wrong += await run.audit()
        assert not wrong, wrong
        run.report(run.summary())


async def _update(world: World, name: str, how: signal.Signals) -> None:
    service = world.services[name]
    service.signal(how)
    await service.ended()
    if name == "control":
        world.start_control()
    elif name == "producer":
        world.start_producer()
    else:
        index = int(name.removeprefix("consumer-"))
        await world.claimed(without=index)
        world.start_consumer(index)
    # it may own nothing yet: members of different versions may refuse each other's handovers
    await world.ready(name)
