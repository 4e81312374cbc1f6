"""`python -m tests.queue_simulation SEEDS`: runs seeds on demand, over all cores, and shows those that fail.

SEEDS is a number n (the seeds 0 … n - 1) or a half-open range a..b. The first failing seed prints its log.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed

from tests.queue_simulation.run import Run, Tally, run, run_all
from tests.simulation.__main__ import parse_seeds

CHUNK = 200
MOST_FAILURES = 5


def main(arguments: list[str] | None = None) -> int:
    """The exit code: 0 when every seed kept every promise."""
    parser = argparse.ArgumentParser(prog="python -m tests.queue_simulation", description=__doc__)
    parser.add_argument("seeds", help="n for the seeds 0 … n - 1, or a half-open range a..b")
    parser.add_argument("--first", action="store_true", help="stop at the first failing seed; no log")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time")
    given = parser.parse_args(arguments)
    first, end = parse_seeds(given.seeds)
    if given.first:
        found = next((one for one in map(run, range(first, end)) if one.wrong), None)
        if found is not None:
            print(f"seed {found.seed} FAILED: {found.wrong[:300]}")
        return int(found is not None)
    began_s = time.monotonic()
    tally = run_spread(first, end, given.jobs)
    print(f"{tally.runs:,} runs in {time.monotonic() - began_s:,.1f} s")
    print(", ".join(f"{what} {n:,}" for what, n in sorted(tally.happened.items())))
    for seed, wrong in tally.wrong:
        print(f"seed {seed} FAILED: {wrong[:300]}")
    if tally.wrong:
        print_log(run(tally.wrong[0][0]))
    return int(bool(tally.wrong))


def run_spread(first: int, end: int, jobs: int) -> Tally:
    """Runs the seeds in `jobs` processes; stops early after some failing seeds."""
    total = Tally()
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        chunks = [pool.submit(run_all, at, min(at + CHUNK, end)) for at in range(first, end, CHUNK)]
        for done in as_completed(chunks):
            total.add(done.result())
            if len(total.wrong) >= MOST_FAILURES:
                pool.shutdown(cancel_futures=True)
                break
    total.wrong.sort()
    return total


def print_log(found: Run) -> None:
    """The log of a run with the reference's answers, and what was wrong."""
    for now_ms, offset, commands, answers in found.world.trace:
        print(now_ms, offset, commands, answers)
    print(f"seed {found.seed}: {found.wrong}")


if __name__ == "__main__":
    sys.exit(main())
