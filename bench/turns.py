"""The longest turn of the event loop, in CPU time with garbage collections, while much closes or moves.

One process, without servers: the real worker over the log in memory, 100,000 sessions of one fragment, 35 MB
in all. Run it with `python -m bench turns`.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from bench.report import Row
from services.consumer.core.commits.checkpoint import folding_records
from services.consumer.core.commits.commit import Commit
from services.consumer.core.commits.stream import Stream
from services.consumer.core.commits.turn import StreamLimits
from services.consumer.core.handover.received import Copy, completing, opening_copy
from services.consumer.core.handover.sent import copying, taking_delta
from services.consumer.core.large_dict import LargeDict
from services.consumer.core.slices import Steps
from services.consumer.member.garbage import free_discarded, keep_collections_short
from services.consumer.stream.context import Claimed, GroupContext
from services.consumer.stream.slices import in_slices
from services.consumer.stream.worker import StreamWorker
from shared.kafka.send.transactional import TAKEN_AT_ONCE
from shared.model.group import GroupSettings
from tests.fakes.log import InMemoryLog, InMemorySink, InMemoryStreamLog

SESSIONS = 100_000
SIZE = 345
ROUNDS = 3
SETTINGS = GroupSettings(repeat_ms=0)
SHOWN = (
    ("open", "100,000 fragments are folded"),
    ("load", "100,000 parked sessions are loaded"),
    ("copy", "35 MB in 100,000 sessions are copied"),
    ("receive", "that copy is received"),
    ("delta", "a delta of that copy is taken"),
    ("complete", "the delta completes the copy"),
    ("whole", "a whole bundle is taken for a recipient that asks"),
    ("fetched", "that bundle is opened"),
    ("dropped", "that stream of 100,000 sessions is dropped"),
    ("marker", "a marker closes 100,000 sessions, committed in parts"),
)


class TimedLoop(asyncio.SelectorEventLoop):
    """Measures its turns: `longest_s` is the CPU time of the longest since it was set to 0."""

    longest_s = 0.0

    def _run_once(self) -> None:
        began_s = time.thread_time()
        super()._run_once()  # type: ignore[misc]
        self.longest_s = max(self.longest_s, time.thread_time() - began_s)


class EncodingSink(InMemorySink):
    """Encodes a commit's sessions in slices, as the sink on Kafka does."""

    async def commit(self, commit: Commit) -> list[int]:
        encoded = []
        for number, record in enumerate(commit.sessions):
            encoded.append(record)
            if number % TAKEN_AT_ONCE == 0:
                await asyncio.sleep(0)
        return await super().commit(replace(commit, sessions=encoded))


class FetchedLog(InMemoryStreamLog):
    """Fetches as many records at once as the reader of Kafka."""

    def most_records(self) -> int:
        return 2_000

    def sink(self, stream: int) -> EncodingSink:
        return EncodingSink(self, stream)


async def _is_mine() -> bool:
    return True


async def _until(reached: Callable[[], bool]) -> None:
    while not reached():
        await asyncio.sleep(0.001)


async def _dropping(held: list[Stream]) -> None:
    """Drops the last reference, and waits until all that it kept is freed."""
    held.clear()
    await _until(lambda: not LargeDict.discarded)


def _worker(broker: InMemoryLog) -> StreamWorker:
    context = GroupContext(
        group="default",
        settings=SETTINGS,
        limits=StreamLimits(commit_s=0.2),
        log=FetchedLog(broker),
        now_s=time.monotonic,
        wall_ms=lambda: 0,
    )
    claimed = Claimed(is_mine=_is_mine, lease_alive=lambda: True, commit_s=0.2)
    return StreamWorker(0, 1, context, claimed)


def _completing(copy: Copy | None, body: bytes) -> Steps[Stream]:
    return completing(
        copy, body, group="default", stream=0, settings=SETTINGS, limits=StreamLimits(commit_s=0.2), now_s=0.0
    )


async def measure() -> dict[str, float]:
    """Milliseconds of the longest turn in each part."""
    keep_collections_short()
    loop = asyncio.get_running_loop()
    assert isinstance(loop, TimedLoop)
    found: dict[str, float] = {}

    async def timed(what: str, work: Coroutine[Any, Any, Any]) -> Any:
        await asyncio.sleep(0.01)
        loop.longest_s = 0.0
        result = await work
        found[what] = loop.longest_s * 1000
        return result

    broker = InMemoryLog(SETTINGS)
    fill(broker)
    worker = _worker(broker)
    freeing = asyncio.create_task(free_discarded())
    running = asyncio.create_task(worker.run())
    stored = broker.stored(0)
    await timed("open", _until(lambda: stored.head is not None and stored.head.position == SESSIONS))
    core, head = worker.core, stored.head
    assert core is not None
    assert head is not None
    await timed("load", in_slices(folding_records(head, sorted(stored.records.items()), SETTINGS.repeat_ms)))
    body, base = await timed("copy", in_slices(copying(core)))
    copy = await timed("receive", in_slices(opening_copy(body, base.digest)))
    broker.append(0, b"visitor-0", b'{"key":"visitor-0"}', 1_000)
    await _until(lambda: stored.head != base.head)  # every session may have changed since
    delta = await timed("delta", in_slices(taking_delta(core, base)))
    await timed("complete", in_slices(_completing(copy, delta)))
    whole = await timed("whole", in_slices(taking_delta(core, None)))
    held = [await timed("fetched", in_slices(_completing(None, whole)))]
    await timed("dropped", _dropping(held))
    broker.append(0, None, b'{"time":9000000000000}')
    await timed("marker", _until(lambda: len(broker.sessions) == SESSIONS))
    worker.stop()
    await running
    freeing.cancel()
    return found


def fill(broker: Any) -> None:
    """One fragment of each session, in an order that looks random to memory."""
    keys = list(range(SESSIONS))
    random.Random(0).shuffle(keys)
    for number in keys:
        key = f"visitor-{number}"
        value = f'{{"key":"{key}","id":"{number}","data":""}}'
        broker.append(0, key.encode(), value.replace('""', f'"{"x" * (SIZE - len(value))}"').encode(), 1_000)


def run(rounds: int = ROUNDS) -> list[Row]:
    """Runs each round in a separate process."""
    found: list[dict[str, float]] = []
    for _ in range(rounds):
        done = subprocess.run(
            [sys.executable, "-m", "bench.turns"], check=True, capture_output=True, text=True, timeout=600
        )
        found.append(json.loads(done.stdout.splitlines()[-1]))
    return [
        Row(
            name=f"longest turn while {what}",
            unit="ms CPU",
            baton=[values[part] for values in found],
            baseline=[],
            target="≤ 50",
        )
        for part, what in SHOWN
    ]


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=TimedLoop) as runner:
        print(json.dumps(runner.run(measure())))
