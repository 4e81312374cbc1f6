"""The producer's door answers correctly whatever a client sends; `make fuzz` sends more of it."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys

import pytest

from tests.fuzz.bodies import BOMB_BYTES
from tests.fuzz.posts import post_of
from tests.fuzz.run import MAX_GROWTH, MAX_PEAK, Found, Memory, faults_of, fuzz

SEEDS = 10_000


def new_start() -> int:
    """The first seed of this run, printed; `BATON_TEST_SEED` repeats it."""
    start = int(os.environ.get("BATON_TEST_SEED", random.SystemRandom().randrange(10**9)))
    print(f"BATON_TEST_SEED={start}")
    return start


def test_mutated_requests_are_answered_correctly_and_leave_nothing_behind() -> None:
    """No exception, no unexpected 5xx; each index once; stored bytes are the posted ones; no leak."""
    start = new_start()

    # in its own process: objects that other tests left in this one would distort the measurement
    command = [sys.executable, "-m", "tests.fuzz", f"{start}..{start + SEEDS}"]
    asked = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)

    print(asked.stdout)
    assert (asked.returncode, asked.stderr) == (0, "")


def test_a_run_reaches_every_answer_that_a_body_can_get() -> None:
    """Otherwise it would prove less than it seems to."""
    found = asyncio.run(fuzz(range(1_500)))

    assert {"200", "400", "401", "403", "413", "415", "422", "503", "gone"} <= found.statuses.keys()
    assert found.kept > 1_000


def test_a_seed_is_always_the_same_request() -> None:
    """So that a failing one can be repeated."""
    assert [repr(post_of(seed)) for seed in range(200)] == [repr(post_of(seed)) for seed in range(200)]


@pytest.mark.parametrize(
    "after",
    [
        Memory(blocks=SEEDS, resident=0, peak=0),
        Memory(blocks=0, resident=MAX_GROWTH + 1, peak=0),
        Memory(blocks=0, resident=0, peak=MAX_PEAK + 1),
    ],
)
def test_memory_growth_is_a_fault(after: Memory) -> None:
    """One more block per request, resident growth, and a peak far below one bomb are all detected."""
    found = Found(before=Memory(blocks=0, resident=0, peak=0), after=after)
    found.statuses["200"] = SEEDS

    assert len(faults_of(found)) == 1
    assert MAX_PEAK < BOMB_BYTES / 2
