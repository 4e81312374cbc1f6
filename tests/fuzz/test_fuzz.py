"""The producer's door answers correctly whatever a client sends; `make fuzz` sends more of it."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import random
import subprocess
import sys
import time
from typing import Any

import pytest

from tests.fuzz.bodies import BOMB_BYTES
from tests.fuzz.face import SETTINGS, Answer, Face
from tests.fuzz.posts import Post, post_of
from tests.fuzz.respelling import respelled
from tests.fuzz.run import MAX_GROWTH, MAX_PEAK, Found, Memory, faults_of, fuzz

SEEDS = 10_000
CACHED, OTHER = 3, 4
"""Two seeds."""


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


def test_a_cost_that_only_the_first_time_has_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache that knows a body must not hide what it cost; a disturbance that does not return is allowed."""
    ask, known, pauses = Face.ask, set[tuple[bytes, ...]](), iter([True])

    async def slow_at_first(face: Face, post: Post) -> Answer:
        is_cached = tuple(post.pieces) in known
        known.add(tuple(post.pieces))
        if (post.seed == CACHED and not is_cached) or (post.seed == OTHER and next(pauses, False)):
            ends_s = time.process_time() + 0.1
            while time.process_time() < ends_s:
                pass
        return await ask(face, post)

    monkeypatch.setattr(Face, "ask", slow_at_first)
    found = asyncio.run(fuzz(range(CACHED, OTHER + 1)))

    assert [(post.seed, "of the allowed" in wrong[0]) for post, wrong in found.wrong] == [(CACHED, True)]
    assert found.slowest[1] == CACHED


def test_a_respelled_request_gets_the_same_answer() -> None:
    """From other bytes of the same length; so it costs as much, unless a cache knows it."""

    async def answers(posts: list[Post]) -> list[tuple[int | None, Any, list[Any]]]:
        faces = {name: Face(name) for name in SETTINGS}
        given = [await faces[post.door].ask(post) for post in posts]
        bodies = [json.loads(one.body) if one.status in (200, 422) and one.body else {} for one in given]
        rejected = [[(r["index"], r["reason"]) for r in body.get("rejected", [])] for body in bodies]
        return [
            (one.status, body.get("accepted"), reasons)
            for one, body, reasons in zip(given, bodies, rejected, strict=True)
        ]

    # a key with another name may go to a stream that stores nothing
    posts = [dataclasses.replace(post_of(seed), mute=frozenset()) for seed in range(1_000)]
    others = [respelled(post) for post in posts]

    assert asyncio.run(answers(others)) == asyncio.run(answers(posts))
    assert sum(other.pieces != post.pieces for other, post in zip(others, posts, strict=True)) > 900


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
