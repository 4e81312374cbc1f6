"""`python -m tests.simulation SEEDS`: runs seeds on demand, over all cores, and shows those that fail.

SEEDS is a number n (the seeds 0 … n - 1) or a half-open range a..b. A failing seed is told with what was
wrong; the first one is run again and its whole trace printed. `--trace` prints that of every seed.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed

from tests.simulation.simulation import Run, Tally, run, run_all

CHUNK = 100
MOST_FAILURES = 5
"""After so many failing seeds no further ones are begun."""


def main(arguments: list[str] | None = None) -> int:
    """The exit code: 0 when every seed kept every promise."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("seeds", help="n for the seeds 0 … n - 1, or a half-open range a..b")
    parser.add_argument("--trace", action="store_true", help="print what happened in each run")
    parser.add_argument("--digest", action="store_true", help="print a digest of what happened in each run")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time")
    given = parser.parse_args(arguments)
    first, end = parse_seeds(given.seeds)
    if given.trace or given.digest:
        return show(first, end, given.digest)
    began_s = time.monotonic()
    tally = run_spread(first, end, given.jobs, most_failures=MOST_FAILURES)
    took_s = time.monotonic() - began_s
    print(f"{tally.runs:,} runs, {tally.virtual_s / 3600:,.1f} hours of virtual time, in {took_s:,.1f} s")
    print(", ".join(f"{what} {n:,}" for what, n in sorted(tally.happened.items())))
    for seed, wrong in tally.wrong[:MOST_FAILURES]:
        print(f"seed {seed} FAILED: {wrong[0][:300]}")
    if tally.wrong:
        print_trace(run(tally.wrong[0][0], listen=True))
        print(f"replay: make simulate SEEDS={tally.wrong[0][0]}..{tally.wrong[0][0] + 1}")
    return 1 if tally.wrong else 0


def parse_seeds(text: str) -> tuple[int, int]:
    """The half-open range that `n` or `a..b` names."""
    first, dots, end = text.partition("..")
    return (int(first), int(end)) if dots else (0, int(first))


def run_spread(first: int, end: int, jobs: int, most_failures: int = sys.maxsize) -> Tally:
    """Runs the seeds by `jobs` processes; stops early after so many failing seeds."""
    total = Tally(0, 0.0, [], Counter())
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        chunks = [pool.submit(run_all, start, min(start + CHUNK, end)) for start in range(first, end, CHUNK)]
        for done in as_completed(chunks):
            total.add(done.result())
            if len(total.wrong) >= most_failures:
                pool.shutdown(cancel_futures=True)
                break
    total.wrong.sort()
    return total


def show(first: int, end: int, digest: bool) -> int:
    """Runs each seed alone and prints its trace, or the digest of it."""
    wrong = 0
    for seed in range(first, end):
        found = run(seed, listen=True)
        wrong += bool(found.wrong)
        if digest:
            text = "\n".join(found.trace.lines())
            print(seed, len(found.trace.entries), hashlib.sha256(text.encode()).hexdigest())
        else:
            print_trace(found)
    return 1 if wrong else 0


def print_trace(found: Run) -> None:
    """What happened in a run, and what was wrong."""
    for line in found.trace.lines():
        print(line)
    for line in found.wrong:
        print(f"seed {found.seed}: {line}")


if __name__ == "__main__":
    sys.exit(main())
