"""Checkpoints are loaded, and copies taken and opened, in slices between which everything else runs."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
import pytest

from services.consumer.core import slices
from services.consumer.core.commits.checkpoint import folding_records
from services.consumer.core.commits.commit import Commit
from services.consumer.core.commits.stream import Stream
from services.consumer.core.commits.turn import StreamLimits
from services.consumer.core.handover import bundle_format, sent
from services.consumer.core.handover import received as receiving
from services.consumer.core.handover.received import completing, opening_copy
from services.consumer.core.handover.sent import SentCopy, copying, taking_delta
from services.consumer.core.sessions.state import Covered, OpenSession
from services.consumer.core.slices import Steps, at_once
from services.consumer.stream import slices as running
from services.consumer.stream.slices import in_slices
from tests.effort import effort
from tests.logs import SETTINGS, Owner, Store, fragment, random_log, received
from tests.unit.consumer.core.test_bundle import state_of

T = TypeVar("T")
LIMITS = StreamLimits(max_replay_fragments=12)


def counted(work: Steps[T], visited: list[object]) -> tuple[T, list[int]]:
    """The result of the work, and how much each slice visits."""
    counts: list[int] = []
    while True:
        before = len(visited)
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result, counts
        finally:
            counts.append(len(visited) - before)


def noting(visited: list[object], act: Callable[..., object]) -> Callable[..., object]:
    """The function, which also notes each call."""

    def noted(*given: object) -> object:
        visited.append(given)
        return act(*given)

    return noted


def completing_a(copy: receiving.Copy | None, body: bytes) -> Steps[Stream]:
    """What `tests.logs.received` does, in slices."""
    return completing(copy, body, group="g", stream=0, settings=SETTINGS, limits=LIMITS, now_s=0.0)


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
    for seed in range(effort(400)):
        body, sent, owner = copied_in_slices(seed)
        changed += owner.stream.position > sent.position
        for _ in range(random.Random(seed).randrange(3)):
            run_on(owner, owner.rng)
        found = received(
            at_once(opening_copy(body, sent.digest)), at_once(taking_delta(owner.stream, sent)), LIMITS
        )

        assert state_of(found) == state_of(owner.stream), f"seed {seed}"
    assert changed > effort(100)


def hundreds_open(monkeypatch: pytest.MonkeyPatch, limits: StreamLimits) -> tuple[Owner, list[object]]:
    """An owner with 200 open sessions, in slices of 10; and the list of what will be visited."""
    monkeypatch.setattr(slices, "SLICE", 10)
    owner = Owner([fragment(n, f"k{n}") for n in range(200)], random.Random(0), Store(), limits)
    owner.stream.fold(owner.log, 0.0)
    visited: list[object] = []
    monkeypatch.setattr(sent, "session_wire", noting(visited, bundle_format.session_wire))
    monkeypatch.setattr(OpenSession, "mark_parked", noting(visited, OpenSession.mark_parked))
    monkeypatch.setattr(receiving, "_extend", noting(visited, receiving._extend))
    return owner, visited


def test_no_slice_of_a_copy_visits_more_than_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither on the way out nor on the way in; a whole bundle as well."""
    owner, visited = hundreds_open(monkeypatch, StreamLimits())

    (body, _), out = counted(copying(owner.stream), visited)
    _, arriving = counted(opening_copy(body, "digest"), visited)
    bundle, whole = counted(taking_delta(owner.stream, None), visited)
    _, fetched = counted(completing_a(None, bundle), visited)

    for counts in (out, arriving, whole, fetched):
        assert (sum(counts), max(counts)) == (200, 10)


def test_a_bundle_is_decoded_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its index says where to divide it."""
    owner, _ = hundreds_open(monkeypatch, StreamLimits())
    body, base = at_once(copying(owner.stream))
    whole = at_once(taking_delta(owner.stream, None))
    sizes: list[int] = []
    decode = bundle_format._decode

    def noting_size(decoder: Any, raw: bytes) -> Any:
        sizes.append(len(raw))
        return decode(decoder, raw)

    monkeypatch.setattr(bundle_format, "_decode", noting_size)
    at_once(opening_copy(body, base.digest))
    received(None, whole, LIMITS)

    assert len(sizes) >= 2 * 200 // 10
    assert max(sizes) < len(body) / 4
    assert all(b"\xa5index\xc6" in one for one in (body, whole))


def test_no_slice_of_a_commit_or_of_a_delta_visits_more_than_its_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The commit parks most sessions, and each of these then differs from the copy."""
    owner, visited = hundreds_open(monkeypatch, StreamLimits(max_replay_fragments=4))
    body, base = at_once(copying(owner.stream))
    copy = at_once(opening_copy(body, base.digest))
    visited.clear()

    turn, parking = counted(owner.stream.turning((), now_s=0.0, wall_ms=0, commit_s=0.0), visited)
    (commit,) = turn.effects
    assert isinstance(commit, Commit)
    owner.stream.committed(commit, range(len(commit.records)), 0.0)
    delta, leaving = counted(taking_delta(owner.stream, base), visited)
    _, arriving = counted(completing_a(copy, delta), visited)

    assert sum(parking) > 100
    for counts in (parking, leaving, arriving):
        assert (sum(counts), max(counts)) == (sum(parking), 10)


def test_a_bundle_without_an_index_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member of the version before wrote no index, and ignores one."""
    owner, _ = hundreds_open(monkeypatch, StreamLimits())
    body, base = at_once(copying(owner.stream))
    delta = at_once(taking_delta(owner.stream, base))

    older = [msgspec.msgpack.encode(bundle_format.decode_bundle(one)) for one in (body, delta)]

    found = received(at_once(opening_copy(older[0], base.digest)), older[1], LIMITS)
    assert b"index" not in older[0] + older[1]
    assert state_of(found) == state_of(owner.stream)


def test_a_large_session_ends_its_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices are bounded in bytes as well."""
    monkeypatch.setattr(slices, "SLICE_BYTES", 1_000)
    log = [fragment(n, f"k{n}", size=900) for n in range(20)]
    owner = Owner(log, random.Random(0), Store(), StreamLimits())
    owner.stream.fold(log, 0.0)
    visited: list[object] = []
    monkeypatch.setattr(sent, "session_wire", noting(visited, bundle_format.session_wire))

    _, out = counted(copying(owner.stream), visited)

    assert max(out) <= 2


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


async def test_other_tasks_run_between_two_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop is free after every step that has used up its time, and the result is returned."""
    monkeypatch.setattr(running, "TURN_S", 0.0)
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


def test_no_slice_of_sorting_looks_at_more_than_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the keys begin: a stream may have read a billion records."""
    monkeypatch.setattr(slices, "SLICE", 10)
    visited: list[object] = []
    items = [10**9 + (n * 37) % 400 for n in range(400)]

    def key(item: int) -> int:
        visited.append(item)
        return item

    ordered, counts = counted(slices.sorting(items.copy(), key), visited)

    assert [*ordered] == sorted(items)
    assert max(counts) <= 20
