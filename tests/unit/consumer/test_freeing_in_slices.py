"""State that nobody refers to any more is freed in slices, wherever its last reference went."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from itertools import pairwise
from typing import Any

import pytest

from services.consumer.core import large_dict
from services.consumer.core.commits.checkpoint import Checkpoint, new_stream
from services.consumer.core.commits.stream import Stream
from services.consumer.core.commits.turn import StreamLimits
from services.consumer.core.handover.received import Copy, opening_copy
from services.consumer.core.handover.sent import copying, taking_delta
from services.consumer.core.large_dict import LargeDict, emptying
from services.consumer.core.sessions.open_table import OpenTable
from services.consumer.core.sessions.state import Covered, OpenSession
from services.consumer.core.slices import at_once
from services.consumer.member.garbage import FREE_EVERY_S, count_objects, free_discarded
from tests.fakes.virtual_time import virtual_time
from tests.logs import SETTINGS, received
from tests.reference import Rec
from tests.unit.consumer.group_world import GroupWorld
from tests.unit.consumer.stream_world import LONG

AT_ONCE = 10
MANY = 300
LIMITS = StreamLimits()


@pytest.fixture
def discarded(monkeypatch: pytest.MonkeyPatch) -> deque[dict[Any, Any]]:
    """What waits to be freed, from the first entry beyond `AT_ONCE` on."""
    monkeypatch.setattr(large_dict, "FREED_AT_ONCE", AT_ONCE)
    waiting = deque[dict[Any, Any]]()
    monkeypatch.setattr(LargeDict, "discarded", waiting)
    return waiting


def stream_of(sessions: int) -> Stream:
    """A stream with so many open sessions and covered keys."""
    stream = Stream(
        group="g",
        stream=0,
        epoch=1,
        settings=SETTINGS,
        limits=LIMITS,
        checkpoint=new_stream(),
        now_s=0.0,
    )
    ended = [Rec(n, 1_000, b"e%d" % n, b'{"key":"e%d","end":true}' % n) for n in range(sessions)]
    still_open = [Rec(sessions + n, 1_000, b"k%d" % n, b'{"key":"k%d"}' % n) for n in range(sessions)]
    stream.fold([*ended, *still_open], 0.0)
    return stream


def half_opened(body: bytes) -> Generator[None, None, Copy]:
    """A copy whose opening will never be continued: the stream has gone to another member."""
    opening = opening_copy(body, "digest")
    for _ in range(3):
        next(opening)
    return opening


DROPPED: dict[str, tuple[Callable[[Stream, bytes], object], int]] = {
    "a stream": (lambda source, body: stream_of(MANY), 2 * MANY),
    "a copy": (lambda source, body: at_once(opening_copy(body, "digest")), 2 * MANY),
    "a copy that is half opened": (lambda source, body: half_opened(body), MANY),
    "what a donor remembers of a copy": (lambda source, body: at_once(copying(source))[1], MANY),
    "a checkpoint": (lambda source, body: checkpoint_of(MANY), 2 * MANY),
}
"""Each makes something large of a stream and its copy; and how many entries it has."""


def checkpoint_of(sessions: int) -> Checkpoint:
    found = Checkpoint(head=new_stream().head)
    found.parked = OpenTable(OpenSession(f"k{n}", n, 0, 0, 0, 0) for n in range(sessions))
    found.covered.update((f"k{n}", Covered(offset=n)) for n in range(sessions))
    return found


@pytest.mark.parametrize("what", DROPPED)
def test_what_is_dropped_is_freed_in_slices(what: str, discarded: deque[dict[Any, Any]]) -> None:
    """Nothing of it when its last reference goes, then a bounded number of entries at a time."""
    make, entries = DROPPED[what]
    source = stream_of(MANY)
    body = at_once(copying(source))[0]
    at_once(emptying(discarded))

    make(source, body)

    left = [sum(map(len, discarded))]
    left += (sum(map(len, discarded)) for _ in emptying(discarded))
    assert (left[0], left[-1]) == (entries, 0)
    assert max(before - after for before, after in pairwise(left)) == AT_ONCE


def test_what_is_still_used_is_not_freed(discarded: deque[dict[Any, Any]]) -> None:
    """A stream keeps the tables of the copy or the checkpoint that it began with."""
    donor = stream_of(MANY)
    body, base = at_once(copying(donor))
    delta = at_once(taking_delta(donor, base))

    found = received(at_once(opening_copy(body, base.digest)), delta, LIMITS)
    at_once(emptying(discarded))

    assert (found.open_sessions, found.covered_keys) == (MANY, MANY)


def test_what_is_small_is_freed_at_once(discarded: deque[dict[Any, Any]]) -> None:
    """Most streams are, and one that is empty leaves nothing."""
    stream_of(AT_ONCE)

    assert len(discarded) == 0


@virtual_time
async def test_a_member_frees_what_is_discarded_while_it_runs() -> None:
    """Soon; once it has ended, nothing waits for a slice that never comes."""
    freeing = asyncio.create_task(free_discarded())
    await asyncio.sleep(0)

    stream_of(MANY)
    waiting = count_objects([])
    await asyncio.sleep(2 * FREE_EVERY_S)

    assert (waiting, count_objects([])) == (2 * MANY, 0)
    freeing.cancel()
    await asyncio.gather(freeing, return_exceptions=True)
    assert LargeDict.discarded is None


@virtual_time
async def test_a_stream_that_was_stopped_still_counts() -> None:
    """A full collection would look at the memory that a member keeps, too."""
    world = GroupWorld(LONG, 1)
    joined = await world.join("a")
    await world.settled()
    world.emit("k")
    await world.committed()
    running = count_objects([joined.member])

    await joined.member.effect_runner.workers.stop(0)

    assert joined.member.workers == []
    assert count_objects([joined.member]) == running > 0
    await world.end()
