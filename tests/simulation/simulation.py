"""One run of the simulation: one seed, one world, one schedule of faults, one verdict; and many of them."""

from __future__ import annotations

import asyncio
import gc
import random
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from services.consumer.core import slices
from services.consumer.core.commits import stream as commits
from services.consumer.core.commits import writer as checkpoint_writer
from services.consumer.core.sessions import marker_search
from services.consumer.member import effects
from services.consumer.stream import slices as running
from shared.model.group import DELIVERIES
from tests.fakes.virtual_time import NoEnd
from tests.simulation.schedule import Schedule
from tests.simulation.trace import Trace, heard
from tests.simulation.verdict import is_quiet, is_shared_out, judge, shares
from tests.simulation.world import World

QUIET_WITHIN_S = 90.0
"""Virtual seconds after the healing, within which the group must have come to rest."""
REST_S = 0.6
"""How long the group is watched after it has come to rest."""
END_OF_TIME_MS = 9_000_000_000_000


@dataclass(frozen=True, slots=True)
class Run:
    """The outcome of a seed: `wrong` is empty for a good run."""

    seed: int
    wrong: Sequence[str]
    trace: Trace
    virtual_s: float


def run(seed: int, kinds: Sequence[str] = (), *, listen: bool = False) -> Run:
    """The run of a seed; the same for the same seed and code. `listen`: the product's own words in the trace.

    `kinds`: methods of `Schedule`, the only faults there shall be; none: what the seed draws.
    Among many it belongs inside `garbage_collected_between_runs`.
    """
    rng = random.Random(f"{seed} schedule")
    world = World(
        seed=seed,
        streams=rng.choice([1, 2, 3, 4]),
        delivery=rng.choices(DELIVERIES, [8, 1, 1])[0],
        max_replay_fragments=rng.choice([4, 12, 40, 1000]),
        commit_s=rng.choice([0.1, 0.3, 1.0]),
        hold_s=rng.choice([3.0, 30.0]),
        rest_s=rng.choice([0.0, 1.0]),
        openings_at_once=rng.choice([1, 2, 32]),
    )
    calls_at_once = rng.choice([1, 16])
    with (
        _small_checkpoints(rng.random() < 0.5),
        _small_parts(seed),
        _calls_at_once(calls_at_once),
        heard(world.trace, listen),
    ):
        try:
            wrong = world.loop.run(_course(world, Schedule(world, rng, kinds)))
        except Exception as error:  # also a fault of ours: the seed that shows it is what helps
            why = [repr(error), traceback.format_exc()]
            with suppress(NoEnd):  # a task that never ends may not be ended either
                world.loop.run(_end(world))
            return Run(seed, why, world.trace, world.loop.now_s)
        gc.collect()  # unretrieved failures surface now and not during another run
        wrong += world.loop.unhandled
    return Run(seed, wrong, world.trace, world.loop.now_s)


@dataclass(slots=True)
class Tally:
    """The sum of many runs: `wrong` seeds with their complaints, and how often what happened."""

    runs: int
    virtual_s: float
    wrong: list[tuple[int, list[str]]]
    happened: Counter[str]

    def add(self, other: Tally) -> None:
        """Adds the runs of another tally."""
        self.runs += other.runs
        self.virtual_s += other.virtual_s
        self.wrong += other.wrong
        self.happened += other.happened


def run_all(seeds: Sequence[int], kinds: Sequence[str] = ()) -> Tally:
    """Runs these seeds."""
    tally = Tally(0, 0.0, [], Counter())
    with garbage_collected_between_runs():
        for seed in seeds:
            found = run(seed, kinds)
            tally.add(
                Tally(
                    1,
                    found.virtual_s,
                    [(seed, list(found.wrong))] if found.wrong else [],
                    Counter(what for _, _, what, _ in found.trace.entries),
                )
            )
    return tally


@contextmanager
def garbage_collected_between_runs() -> Iterator[None]:
    """Freezes all existing objects, which makes the collection after each run cheap."""
    gc.disable()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.enable()


async def _course(world: World, schedule: Schedule) -> list[str]:
    world.trace.note("", "begins", f"seed {world.seed}, {world.delivery}, {world.streams} streams")
    await schedule.run()
    wrong = []
    repair = schedule.regrown_logs.start_over
    if schedule.large_streams.are_large:
        if not await _is_so_in_time(is_shared_out, world, repair):
            wrong.append(f"large streams do not move: {shares(world)} of {world.streams} streams")
        schedule.large_streams.shrink()
    if world.lost:
        if not await _is_so_in_time(is_quiet, world, repair):
            wrong.append(f"no quiescence beside lost logs: {shares(world)} of {world.streams} streams")
        world.restore_logs()
    for stream in range(world.streams):
        world.append_marker(stream, END_OF_TIME_MS)
    if not await _is_so_in_time(is_quiet, world, repair):
        wrong.append(f"no quiescence: {shares(world)} of {world.streams} streams")
    wrong += await _unrest(world)
    wrong += judge(world)
    for line in wrong:
        world.trace.note("", "WRONG", line)
    await _end(world)
    return wrong


async def _is_so_in_time(is_so: Callable[[World], bool], world: World, repair: Callable[[], None]) -> bool:
    deadline_s = world.loop.now_s + QUIET_WITHIN_S
    while not is_so(world):
        world.loop.call_soon(repair, context=world.context)
        if world.loop.now_s > deadline_s:
            return False
        await asyncio.sleep(0.1)
    return True


async def _unrest(world: World) -> list[str]:
    """Streams that are fenced again and again in a quiet group: by two workers of one stream, say.

    Once or twice they may be, by requests that were late.
    """
    before = len(world.trace.entries)
    await asyncio.sleep(REST_S)
    fenced = Counter(said[0] for _, _, what, said in world.trace.entries[before:] if what == "fences")
    return [f"stream {stream} is fenced {n} times in a quiet group" for stream, n in fenced.items() if n > 2]


async def _end(world: World) -> None:
    """Ends everything, so that no task of one run dies during the next."""
    tasks = [process.task for process in world.processes.values() if process.task is not None]
    for process in list(world.processes.values()):
        world.kill(process, "ends with the run")
    await asyncio.gather(*tasks, *world.killed, return_exceptions=True)


@contextmanager
def _small_checkpoints(is_small: bool) -> Iterator[None]:
    """Whole sets now and then, and spread over commits, as in long logs."""
    before = checkpoint_writer.MAX_CHUNK_BYTES, checkpoint_writer.MIN_WHOLE_BYTES
    if is_small:
        checkpoint_writer.MAX_CHUNK_BYTES, checkpoint_writer.MIN_WHOLE_BYTES = 60, 200
    try:
        yield
    finally:
        checkpoint_writer.MAX_CHUNK_BYTES, checkpoint_writer.MIN_WHOLE_BYTES = before


@contextmanager
def _calls_at_once(most: int) -> Iterator[None]:
    """Claims and releases that a member has in flight: with one, four streams are enough for a queue."""
    before, effects.CALLS_AT_ONCE = effects.CALLS_AT_ONCE, most
    try:
        yield
    finally:
        effects.CALLS_AT_ONCE = before


@contextmanager
def _small_parts(seed: int) -> Iterator[None]:
    """Commits in parts of one or two sessions, and copies in slices of one: every run splits some."""
    before = commits.MAX_PENDING_BYTES, marker_search.SEARCHED_AT_ONCE, slices.SLICE, running.TURN_S
    commits.MAX_PENDING_BYTES = random.Random(f"{seed} parts").choice([1, 4000])
    marker_search.SEARCHED_AT_ONCE, slices.SLICE, running.TURN_S = 2, 1, 0.0
    try:
        yield
    finally:
        commits.MAX_PENDING_BYTES, marker_search.SEARCHED_AT_ONCE, slices.SLICE, running.TURN_S = before
