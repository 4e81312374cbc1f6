"""A rolling update under load: every service begins with an earlier commit's code, and ends with this one's.

One service after the other is stopped in order, or killed, as the seed says, and started with other code;
on the way some go back. Heads, checkpoints, events, znodes and requests between members are read by owners of
the other version, and each member that comes gets streams from members of the other version.
"""

from __future__ import annotations

import asyncio
import io
import random
import signal
import subprocess
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.chaos import CATCH_UP_PER_S, Run
from tests.e2e.chaos_load import Load
from tests.e2e.chaos_world import World, chaos_world
from tests.e2e.service import CHECKOUT
from tests.waiting import until

EARLIER = "bbb33e5"
"""The last commit before Baton's own Kafka layer, failover by suspicion, and moves by turns."""
PER_S = 250
_CONSUMER = "consumer-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """At least `fragments` are posted while the services of `steps` are updated; `BACK` precedes a name that
    goes back to the earlier version. `has_audit`: Spark's audit judges, too.
    """

    fragments: int
    consumers: int
    steps: Sequence[str]
    has_audit: bool


BACK = "back: "
SHORT = Update(
    fragments=3_000,
    consumers=2,
    steps=("producer", "consumer-0", BACK + "consumer-0", "consumer-0", "consumer-1"),
    has_audit=False,
)
LONG = Update(
    fragments=12_000,
    consumers=3,
    steps=(
        *("producer", "consumer-0", "consumer-1"),
        *(BACK + "consumer-1", BACK + "producer"),
        *("producer", "consumer-1", "consumer-2", "control"),
    ),
    has_audit=True,
)


def checkout_of(commit: str, folder: Path) -> bool:
    """Writes the files of a commit into the folder; False if this clone does not have the commit."""
    archive = subprocess.run(["git", "archive", commit], cwd=CHECKOUT, capture_output=True, check=False)
    if archive.returncode != 0:
        return False
    folder.mkdir()
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")
    return True


async def rolling_update(home: Path, seed: int, earlier: Path, update: Update) -> None:
    """A whole run, judged like a chaos run; AssertionError when anything is wrong."""
    rng = random.Random(seed)
    killed = rng.choice([step for step in update.steps if _CONSUMER in step])
    async with chaos_world(home, update.consumers, earlier) as world:
        load = Load(world.producer_url, seed, PER_S)
        run = Run(world, load, seed)
        async with asyncio.TaskGroup() as tasks:
            posting = tasks.create_task(load.run(), name="load")
            run.report(await run.until_at_work())
            for step in update.steps:
                world.checkout = earlier if step.startswith(BACK) else CHECKOUT
                how = signal.SIGKILL if step == killed else signal.SIGTERM
                await _update(world, step.removeprefix(BACK), how)
                run.struck[f"update by {how.name}"] = run.struck.get(f"update by {how.name}", 0) + 1
                run.report(f"{step} after {how.name}; {await run.until_at_work()}")
            load.finish(update.fragments, CATCH_UP_PER_S)
            await until(posting.done, lambda: f"still posting: {load}\n{world.tail()}")
        await run.settle()
        wrong = await run.judge(update.fragments)
        if update.has_audit:
            wrong += await run.audit()
        assert not wrong, wrong
        run.report(run.summary())


async def _update(world: World, name: str, how: signal.Signals) -> None:
    """Replaces a service by one of the world's present code; a consumer has streams again in the end."""
    service = world.services[name]
    service.signal(how)
    await service.ended()
    if name == "control":
        world.start_control()
    elif name == "producer":
        world.start_producer()
    else:
        index = int(name.removeprefix(_CONSUMER))
        await world.claimed(without=index)
        world.start_consumer(index)
        await world.claimed(by=index)
    await world.ready(name)
