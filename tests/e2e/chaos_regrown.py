"""Fragments topics that are deleted, created anew, and filled beyond where they ended, under load.

A whole log is gone by the operator's hand, so the judge of a chaos run cannot judge it; this scenario has its
own. It checks what docs/protocol.md promises: the streams stop in `rewind`, nothing of the new log is
delivered before the operator has started them over, and from there on all of it, under ids of another log.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from shared.errors import BatonError
from shared.model.sessions import Session
from tests.e2e.chaos import CATCH_UP_PER_S, Run
from tests.e2e.chaos_judge import judge_ledger, number_of
from tests.e2e.chaos_load import Load
from tests.e2e.chaos_operator import create_anew, delete_checkpoints, forget_heads
from tests.e2e.chaos_world import STREAMS, World, chaos_world
from tests.e2e.fleet import SETTINGS
from tests.e2e.readers import judge_log
from tests.reference import Rec, delivered_row, fold_eagerly
from tests.waiting import until

LOST = 3
"""Streams whose logs are lost at once."""
PER_S = 400
FRAGMENTS = 3_000


async def regrown_logs(home: Path, seed: int) -> None:
    """A whole run; AssertionError when anything is wrong."""
    lost = sorted(random.Random(seed).sample(range(STREAMS), LOST))
    async with chaos_world(home, 3) as world:
        before = Load(world.producer_url, seed, PER_S, visitors="before")
        run = Run(world, before, seed)
        before.finish(FRAGMENTS, PER_S)
        await before.run()
        logs = {stream: await world.where.log(stream) for stream in lost}
        await _committed_some(world, lost)
        await create_anew(world.where, lost)
        run.report(f"logs of streams {lost} are gone, with {sum(map(len, logs.values()))} records")
        after = Load(world.producer_url, seed + 1, PER_S, visitors="after")
        async with asyncio.TaskGroup() as tasks:
            posting = tasks.create_task(after.run(), name="load")
            await _stopped(world, lost)
            await _outgrown(world, logs)
            at_rest = _rows_of(await world.where.delivered(), lost)
            run.report(f"streams {lost} are in rewind; {at_rest.total()} of their sessions were delivered")
            await _started_over(world, lost)
            after.finish(FRAGMENTS, CATCH_UP_PER_S)
            await until(posting.done, lambda: f"still posting: {after}\n{world.tail()}")
        await Run(world, after, seed).settle()
        wrong = await judge(world, logs, before, after)
        delivered = await world.where.delivered()
        first = _rows_of([session for session in delivered if not session.log], lost)
        if first != at_rest:
            wrong.append(f"delivered on, with the lost logs' number: {first.total()} after {at_rest.total()}")
        run.report(f"{len(delivered)} sessions; wrong: {wrong or 'nothing'}")
        assert not wrong, wrong


async def judge(world: World, lost: dict[int, list[Rec]], before: Load, after: Load) -> list[str]:
    """What is wrong; empty when nothing is. `lost`: the logs as they were before."""
    delivered = await world.where.delivered()
    wrong = []
    for stream in range(STREAMS):
        own = [session for session in delivered if session.stream == stream]
        if stream in lost:
            earlier = Counter(session.row() for session in fold_eagerly(lost[stream], SETTINGS)[0])
            made_up = Counter(delivered_row(session) for session in own if not session.log) - earlier
            if made_up:
                wrong.append(f"stream {stream}: {made_up.total()} sessions that its lost log does not hold")
            own = [session for session in own if session.log]
        wrong += await asyncio.to_thread(judge_log, stream, await world.where.log(stream), own, SETTINGS)
    gone = {number_of(record.value) for log in lost.values() for record in log if record.key is not None}
    for one in before.ledger.fragments:
        one.is_acknowledged &= one.number not in gone
    for load, visitors in ((before, "before"), (after, "after")):
        own = [session for session in delivered if session.key.startswith(visitors)]
        wrong += judge_ledger(load.ledger, own)
    return wrong


def _rows_of(delivered: Sequence[Session], streams: Sequence[int]) -> Counter[str]:
    """The ids of the sessions of these streams, with how often they come."""
    return Counter(session.id for session in delivered if session.stream in streams)


async def _committed_some(world: World, streams: Sequence[int]) -> None:
    """Returns once something of each stream is committed."""

    async def is_so() -> bool:
        with contextlib.suppress(BatonError):
            positions = await world.positions()
            return all(positions.get(stream, 0) > 0 for stream in streams)
        return False

    await until(is_so, lambda: f"nothing committed:\n{world.tail()}")


async def _stopped(world: World, streams: Sequence[int]) -> None:
    """Returns once these streams are in `rewind` and all others run."""
    states: dict[int, str] = {}

    async def are_stopped() -> bool:
        states.update({stream: row["state"] for stream, row in (await world.rows()).items()})
        found = {stream for stream, state in states.items() if state == "rewind"}
        return found == set(streams) and set(states.values()) == {"rewind", "running"}

    await until(are_stopped, lambda: f"{states} instead of rewind in {streams}:\n{world.tail()}")


async def _outgrown(world: World, logs: dict[int, list[Rec]]) -> None:
    """Returns once each log is longer than the one that was lost."""
    lengths: dict[int, int] = {}

    async def are_longer() -> bool:
        rows = await world.rows()
        lengths.update({stream: row["end"] for stream, row in rows.items() if row["end"] is not None})
        return all(lengths.get(stream, 0) > len(log) for stream, log in logs.items())

    await until(are_longer, lambda: f"logs end at {lengths}:\n{world.tail()}")


async def _started_over(world: World, streams: Sequence[int]) -> None:
    """Starts the streams over as docs/operations.md says: without members, offsets and checkpoints go."""
    members = world.consumers
    await world.leave()
    await forget_heads(world.where, streams)
    await delete_checkpoints(world.where, streams)
    for index in members:
        world.start_consumer(index)
    await world.claimed()
