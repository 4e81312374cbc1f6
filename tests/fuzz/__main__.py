"""`python -m tests.fuzz SEEDS`: sends mutated requests to the producer's door, and prints those that fail.

SEEDS is a number n (the seeds 0 … n - 1) or a half-open range a..b. A failing seed is printed with its
request; `SEEDS=17..18` repeats it. `--show` prints every request and its answer.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time

from tests.fuzz.face import SETTINGS, Face
from tests.fuzz.posts import post_of
from tests.fuzz.run import WARM_UP, faults_of, fuzz
from tests.simulation.__main__ import parse_seeds


def main(arguments: list[str] | None = None) -> int:
    """The exit code: 0 if every request was answered correctly, and memory did not grow."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("seeds", help="n for the seeds 0 … n - 1, or a half-open range a..b")
    parser.add_argument("--show", action="store_true", help="print each request and its answer")
    given = parser.parse_args(arguments)
    first, end = parse_seeds(given.seeds)
    if given.show:
        asyncio.run(show(first, end))
    began_s = time.monotonic()
    found = asyncio.run(fuzz(range(first, end), warm_up=range(end, end + WARM_UP)))
    print(f"{found.summary()}, in {time.monotonic() - began_s:,.1f} s")
    for fault in (faults := faults_of(found)):
        print(fault)
    if found.wrong:
        seed = found.wrong[0][0].seed
        print(f"replay: make fuzz SEEDS={seed}..{seed + 1}")
    return 1 if faults else 0


async def show(first: int, end: int) -> None:
    """Prints each request and its answer."""
    faces = {name: Face(name) for name in SETTINGS}
    for seed in range(first, end):
        post = post_of(seed)
        print(post)
        print(await faces[post.door].ask(post))


if __name__ == "__main__":
    sys.exit(main())
