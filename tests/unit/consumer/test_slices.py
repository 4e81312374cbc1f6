"""Checkpoints are loaded, and copies taken and opened, in slices between which everything else runs."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator

import pytest

from services.consumer.core import slices
from services.consumer.core.commits.checkpoint import folding_records
from services.consumer.core.commits.turn import StreamLimits
from services.consumer.core.handover import bundle_format, sent
from services.consumer.core.handover import received as receiving
from services.consumer.core.handover.received import open_copy, opening_copy
from services.consumer.core.handover.sent import SentCopy, copying, take_delta
from services.consumer.core.sessions.state import Covered, OpenSession
from services.consumer.core.slices import Steps, at_once
from services.consumer.stream.slices import in_slices
from tests.logs import SETTINGS, Owner, Store, fragment, random_log, received
from tests.unit.consumer.test_bundle import state_of

LIMITS = StreamLimits(max_replay_fragments=12)


def steps_of(work: Steps[object], visited: list[object]) -> Iterator[int]:
    """How much each slice visits."""
    while True:
        before = len(visited)
        try:
            next(work)
        except StopIteration:
            return
        finally:
            yield len(visited) - before


def noting(visited: list[object], act: Callable[..., object]) -> Callable[..., object]:
    """The function, which also notes each call."""

    def noted(*given: object) -> object:
        visited.append(given)
        return act(*given)

    return noted


def copied_in_slices(seed: int) -> tuple[bytes, SentCopy, Owner]:
    """A copy whose stream folds, parks and commits between its slices."""
    rng = random.Random(seed)
    log = random_log(rng)
    owner = Owner(log[: rng.randrange(10, 40)], rng, Store(), LIMITS)
    while not owner.run():
        owner.succeed()
    owner.log, work = log, copying(owner.stream)
    while True:
        try:
            next(work)
        except StopIteration as end:
            body, sent = end.value
            return body, sent, owner
        if rng.random() < 0.6:
            run_on(owner, rng)


def run_on(owner: Owner, rng: random.Random) -> None:
    """Some more of the log, and now and then a look for silence and a commit."""
    at = owner.stream.position
    owner.stream.fold(owner.log[at : at + rng.choice([1, 2, 4])], 0.0)
    if rng.random() < 0.3:
        owner.stream.turn((), now_s=0.0, wall_ms=0, commit_s=None)
    if rng.random() < 0.3 and owner.stream.has_changes:
        owner.commit()


@pytest.mark.parametrize("size", [1, 2])
def test_a_stream_that_runs_while_it_is_copied_arrives_as_it_was_sent(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever changes between two slices is corrected by the delta."""
    monkeypatch.setattr(slices, "SLICE", size)
    changed = 0
    for seed in range(400):
        body, sent, owner = copied_in_slices(seed)
        changed += owner.stream.position > sent.position
        for _ in range(random.Random(seed).randrange(3)):
            run_on(owner, owner.rng)
        found = received(open_copy(body, sent.digest), take_delta(owner.stream, sent), LIMITS)

        assert state_of(found) == state_of(owner.stream), f"seed {seed}"
    assert changed > 100


def test_no_slice_of_a_copy_visits_more_than_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither on the way out nor on the way in."""
    monkeypatch.setattr(slices, "SLICE", 10)
    owner = Owner([fragment(n, f"k{n}") for n in range(200)], random.Random(0), Store(), StreamLimits())
    owner.stream.fold(owner.log, 0.0)
    visited: list[object] = []
    monkeypatch.setattr(sent, "session_wire", noting(visited, bundle_format.session_wire))
    monkeypatch.setattr(receiving, "_extend", noting(visited, receiving._extend))

    out = list(steps_of(copying(owner.stream), visited))
    body, _ = at_once(copying(owner.stream))
    arriving = list(steps_of(opening_copy(body, "digest"), visited))

    assert (sum(out), max(out)) == (200, 10)
    assert (sum(arriving), max(arriving)) == (200, 10)


def test_a_large_session_ends_its_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices are bounded in bytes as well."""
    monkeypatch.setattr(slices, "SLICE_BYTES", 1_000)
    log = [fragment(n, f"k{n}", size=900) for n in range(20)]
    owner = Owner(log, random.Random(0), Store(), StreamLimits())
    owner.stream.fold(log, 0.0)
    visited: list[object] = []
    monkeypatch.setattr(sent, "session_wire", noting(visited, bundle_format.session_wire))

    assert max(steps_of(copying(owner.stream), visited)) <= 2


def test_a_checkpoint_is_loaded_a_record_or_a_slice_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step visits a bounded number of keys, and the result is in order."""
    monkeypatch.setattr(slices, "SLICE", 10)
    rng, store = random.Random(0), Store()
    log = [fragment(n, f"k{n}") for n in range(300)]
    owner = Owner(log, rng, store, StreamLimits(max_replay_fragments=100))
    owner.stream.fold(log, 0.0)
    assert owner.commit()
    assert store.head is not None
    records = sorted(store.records.items())

    steps = sum(1 for _ in folding_records(store.head, records, SETTINGS.repeat_ms))
    found = at_once(folding_records(store.head, records, SETTINGS.repeat_ms))

    offsets = [session.last_offset for session in found.parked.values()]
    assert steps >= len(records) + len(offsets) // 10 > 10
    assert offsets == sorted(offsets)
    assert found.parked_bytes == sum(session.bytes for session in found.parked.values())
    assert isinstance(next(iter(found.parked.values())), OpenSession)
    assert all(isinstance(entry, Covered) for entry in found.covered.values())


async def test_other_tasks_run_between_two_slices() -> None:
    """The loop is free after every step, and the result is returned."""
    turns = [0]

    def work() -> Steps[str]:
        for _ in range(5):
            yield
        return "done"

    async def count() -> None:
        while True:
            turns[0] += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    assert await in_slices(work()) == "done"
    counting.cancel()

    assert turns[0] >= 4
