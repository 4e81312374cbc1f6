"""Runs of the real workers of the queue service by seed: `python -m tests.queue_simulation.service SEEDS`.

SEEDS is a number n (the seeds 0 … n - 1) or a half-open range a..b. `--trace` shows what happened in each.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import sys
from collections import Counter

from tests.fakes.virtual_time import VirtualLoop, cancel_all
from tests.queue_simulation.course import Course, name_of
from tests.simulation.__main__ import parse_seeds
from tests.simulation.simulation import garbage_collected_between_runs
from tests.simulation.trace import heard

MAX_CALLS = 1_000_000
"""Of the loop, in one run; a good one has less than a quarter of that."""
MAX_LIVES = 60


def run(seed: int, *, listen: bool = False) -> Course:
    """The run of a seed: the same for the same seed and code. `listen`: the workers' own words in the trace.

    Among many it belongs inside `garbage_collected_between_runs`.
    """
    loop = VirtualLoop(MAX_CALLS)
    course = Course(seed, loop)
    with heard(course.trace, listen):
        try:
            loop.run(course.run())
        except Exception as error:  # an answer that no worker should give is a broken promise too
            course.wrong.append(repr(error))
        course.trace.note("", "ends", course.rng.random())
        entries = len(course.trace.entries)
        for life in range(MAX_LIVES):
            loop.thaw(name_of(life))
        loop.run(cancel_all(asyncio.all_tasks(loop)))
        del course.trace.entries[entries:]  # how its tasks end is no part of the run
        gc.collect()  # unretrieved failures surface now and not during another run
    course.wrong += loop.unhandled
    return course


def main(arguments: list[str] | None = None) -> int:
    """The exit code: 0 when every seed kept every promise; those that did not are printed."""
    parser = argparse.ArgumentParser(prog="python -m tests.queue_simulation.service", description=__doc__)
    parser.add_argument("seeds", help="n for the seeds 0 … n - 1, or a half-open range a..b")
    parser.add_argument("--first", action="store_true", help="print nothing but the first failing seed")
    parser.add_argument("--trace", action="store_true", help="print what happened in each run")
    parser.add_argument("--digest", action="store_true", help="print a digest of what happened in each run")
    given = parser.parse_args(arguments)
    happened: Counter[str] = Counter()
    failed = 0
    with garbage_collected_between_runs():
        for seed in range(*parse_seeds(given.seeds)):
            course = run(seed, listen=given.trace or given.digest)
            happened += course.store.happened
            if given.trace:
                print("\n".join(course.trace.lines()))
            if given.digest:
                print(seed, len(course.trace.entries), course.trace.digest())
            if course.wrong:
                failed += 1
                print(f"seed {seed} FAILED: {course.wrong[0][:300]}", flush=True)
                if given.first:
                    break
    if not given.first:
        print(", ".join(f"{what} {n:,}" for what, n in sorted(happened.items())))
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
