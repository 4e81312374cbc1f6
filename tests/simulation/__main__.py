"""`python -m tests.simulation SEEDS`: runs seeds on demand, over all cores, and shows those that fail.

SEEDS is a number n (the seeds 0 … n - 1) or a half-open range a..b. A failing seed is reported with its
fault; the first one runs again and prints its whole trace. `--trace` prints that of every seed. `--in-pairs`
gives each kind of fault alone and each pair that many seeds: the first a … b - 1, the next those behind them.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import combinations

from tests.simulation.schedule import KINDS, RARE_KINDS
from tests.simulation.simulation import Run, Tally, garbage_collected_between_runs, run, run_all

CHUNK = 100
MOST_FAILURES = 5
"""After this many failing seeds no new ones start."""
MOST_LINES = 2000
"""Of a trace; some hundreds are usual."""

Part = tuple[range, Sequence[str]]
"""Seeds, and the only kinds of faults in them; none: what each seed draws."""


def main(arguments: list[str] | None = None) -> int:
    """The exit code: 0 when every seed kept every promise."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("seeds", help="n for the seeds 0 … n - 1, or a half-open range a..b")
    parser.add_argument("--trace", action="store_true", help="print what happened in each run")
    parser.add_argument("--digest", action="store_true", help="print a digest of what happened in each run")
    parser.add_argument("--first", action="store_true", help="stop at the first failing seed; no trace")
    parser.add_argument("--kinds", default="", help="only these kinds of faults, with commas between them")
    parser.add_argument("--in-pairs", action="store_true", help="each kind of fault alone and each pair")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time")
    given = parser.parse_args(arguments)
    first, end = parse_seeds(given.seeds)
    kinds = tuple(kind for kind in given.kinds.split(",") if kind)
    if given.first:
        return look_for_first(first, end, kinds)
    if given.trace or given.digest:
        return show(first, end, kinds, given.digest)
    began_s = time.monotonic()
    if given.in_pairs:
        parts = in_pairs(first, end)
        tally = run_spread(parts, given.jobs)
    else:
        parts = [(range(first, end), kinds)]
        tally = run_spread(parts, given.jobs, most_failures=MOST_FAILURES)
    took_s = time.monotonic() - began_s
    print(f"{tally.runs:,} runs, {tally.virtual_s / 3600:,.1f} hours of virtual time, in {took_s:,.1f} s")
    print(", ".join(f"{what} {n:,}" for what, n in sorted(tally.happened.items())))
    failing = [next(kinds for seeds, kinds in parts if seed in seeds) for seed, _ in tally.wrong]
    if given.in_pairs:
        print(f"{len(parts)} combinations of {len(KINDS + RARE_KINDS)} kinds, {len(set(failing))} failed")
    if tally.wrong:
        seed, among = tally.wrong[0][0], failing[0]
        print_trace(run(seed, among, listen=True))
        how = f" ARGS='--kinds {','.join(among)}'" if among else ""
        print(f"replay: make simulate SEEDS={seed}..{seed + 1}{how}")
    return 1 if tally.wrong else 0


def parse_seeds(text: str) -> tuple[int, int]:
    """The half-open range that `n` or `a..b` names."""
    first, dots, end = text.partition("..")
    return (int(first), int(end)) if dots else (0, int(first))


def in_pairs(first: int, end: int) -> list[Part]:
    """Each kind of fault alone and each pair: the seeds of one stand behind those of the one before."""
    every, count = KINDS + RARE_KINDS, end - first
    sets = [*combinations(every, 1), *combinations(every, 2)]
    return [(range(first + n * count, first + (n + 1) * count), kinds) for n, kinds in enumerate(sets)]


def look_for_first(first: int, end: int, kinds: Sequence[str]) -> int:
    """Runs the seeds until one fails, and prints which and why."""
    with garbage_collected_between_runs():
        for seed in range(first, end):
            found = run(seed, kinds)
            if found.wrong:
                print(f"seed {seed} FAILED: {found.wrong[0][:300]}")
                return 1
    return 0


def run_spread(parts: Sequence[Part], jobs: int, most_failures: int = sys.maxsize) -> Tally:
    """Runs the seeds in `jobs` processes; stops early after `most_failures` failing seeds."""
    total = Tally(0, 0.0, [], Counter())
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        chunks = {
            pool.submit(run_all, seeds[at : at + CHUNK], kinds): kinds
            for seeds, kinds in parts
            for at in range(0, len(seeds), CHUNK)
        }
        for done in as_completed(chunks):
            for seed, wrong in done.result().wrong:
                print(f"seed {seed} FAILED: {wrong[0][:300]}", *chunks[done], flush=True)
            total.add(done.result())
            if len(total.wrong) >= most_failures:
                pool.shutdown(cancel_futures=True)
                break
    total.wrong.sort()
    return total


def show(first: int, end: int, kinds: Sequence[str], digest: bool) -> int:
    """Runs each seed alone and prints its trace, or the digest of it."""
    wrong = 0
    for seed in range(first, end):
        found = run(seed, kinds, listen=True)
        wrong += bool(found.wrong)
        if digest:
            print(seed, len(found.trace.entries), found.trace.digest())
        else:
            print_trace(found)
    return 1 if wrong else 0


def print_trace(found: Run) -> None:
    """What happened in a run, in the end where it is long, and what was wrong."""
    lines = list(found.trace.lines())
    if len(lines) > MOST_LINES:
        print(f"… {len(lines) - MOST_LINES:,} lines before these …")
    print("\n".join(lines[-MOST_LINES:]))
    for line in found.wrong:
        print(f"seed {found.seed}: {line}")


if __name__ == "__main__":
    sys.exit(main())
