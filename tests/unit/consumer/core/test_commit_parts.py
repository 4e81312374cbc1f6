"""A commit that would be too large is made in parts, and costs what has changed instead of what is open."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import pytest

from services.consumer.core.commits import stream as commits
from services.consumer.core.commits.checkpoint import new_stream
from services.consumer.core.commits.commit import Commit
from services.consumer.core.commits.last_record import LogLost
from services.consumer.core.commits.stream import Stream
from services.consumer.core.commits.turn import StreamLimits, Turn
from services.consumer.core.handover.rules import is_valid
from services.consumer.core.handover.sent import taking_delta
from services.consumer.core.sessions import fold, marker_search
from services.consumer.core.sessions.open_table import OpenTable
from services.consumer.core.sessions.record import Record
from services.consumer.core.sessions.state import OpenSession
from services.consumer.core.slices import at_once
from shared.model.sessions import parse_session
from tests.effort import effort
from tests.fakes.virtual_time import until, virtual_time
from tests.logs import Owner, Store, difference, fragment, received
from tests.reference import Rec
from tests.unit.consumer.stream_world import LONG, StreamWorld

MARKER = b'{"time":9000000000000}'
PART = 3
"""How many small sessions a commit carries in these tests."""


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "MAX_PENDING_BYTES", 5_000)


def opened(records: Iterable[Rec] = (), limits: StreamLimits | None = None) -> Stream:
    """A stream that has read these records."""
    stream = Stream(
        group="g",
        stream=0,
        epoch=1,
        settings=LONG,
        limits=limits or StreamLimits(),
        checkpoint=new_stream(),
        now_s=0.0,
    )
    stream.fold(list(records), 0.0)
    return stream


def take(stream: Stream, turn: Turn) -> Commit:
    """The commit of a turn, which succeeds."""
    (commit,) = turn.effects
    assert isinstance(commit, Commit)
    stream.committed(commit, range(len(commit.records)), 0.0)
    return commit


def parts_of(stream: Stream, records: list[Rec], *, most: int = 1_000) -> list[Commit]:
    """The commits of one batch, until nothing is left of it."""
    parts = []
    turn = stream.turn(records, now_s=0.0, wall_ms=0, commit_s=0.0)
    while turn.effects or turn.left:
        parts += [take(stream, turn)] if turn.effects else []
        assert len(parts) < most
        turn = stream.turn(turn.left, now_s=0.0, wall_ms=0, commit_s=0.0)
    return parts


def sizes(parts: list[Commit]) -> list[int]:
    """How many sessions each commit delivers."""
    return [len(part.sessions) for part in parts]


def keys(parts: list[Commit]) -> list[str]:
    """The keys of the delivered sessions."""
    return [parse_session(value).key for part in parts for _, value in part.sessions]


def test_a_marker_that_closes_much_is_committed_in_parts() -> None:
    """The position stays at the marker until everything that it closes is delivered, since a replay below the
    position closes nothing."""
    stream = opened(fragment(n, f"k{n}") for n in range(10))

    parts = parts_of(stream, [Rec(10, 2000, None, MARKER), fragment(11, "later")])

    assert sizes(parts) == [PART, PART, PART, 1]
    assert [part.head.position for part in parts] == [10, 10, 10, 12]
    assert keys(parts) == [f"k{n}" for n in range(10)]
    assert stream.counts.markers == 1


def test_what_silence_closes_is_committed_in_parts() -> None:
    """The first record after an outage finds every session silent. Those that wait for a later part stay
    open, so the position need not wait for them."""
    stream = opened(fragment(n, f"k{n}") for n in range(10))

    parts = parts_of(stream, [Rec(10, 2_000 + LONG.idle_ms, None, b"{}")])

    assert sizes(parts) == [PART, PART, PART, 1]
    assert [part.head.position for part in parts] == [11] * 4
    assert [part.head.safe_offset for part in parts] == [3, 6, 9, 11]


def test_what_many_fragments_close_is_committed_in_parts() -> None:
    """A small batch can end large sessions, so the fold stops in its middle."""
    stream = opened(fragment(n, f"k{n}", size=4_000) for n in range(6))
    ends = [Rec(6 + n, 1010, b"k%d" % n, b'{"key":"k%d","end":true}' % n) for n in range(6)]

    parts = parts_of(stream, ends)

    assert sizes(parts) == [1] * 6
    assert [part.head.position for part in parts] == [7, 8, 9, 10, 11, 12]


def test_nothing_more_is_closed_while_the_member_may_not_write() -> None:
    """What is full stays as it is, and the batch is left."""
    stream = opened(fragment(n, f"k{n}") for n in range(10))
    batch = [Rec(10, 2000, None, MARKER)]

    turn = stream.turn(batch, now_s=0.0, wall_ms=0, commit_s=None)
    again = stream.turn(turn.left, now_s=0.0, wall_ms=0, commit_s=None)

    assert (list(turn.left), list(again.left)) == (batch, batch)
    assert len(stream.pending) == PART
    assert sum(sizes(parts_of(stream, batch))) == 10


def test_a_marker_searches_a_bounded_number_of_sessions_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A marker that closes nothing among many sessions does not stop the others either."""
    monkeypatch.setattr(marker_search, "SEARCHED_AT_ONCE", 4)
    stream = opened(fragment(n, f"k{n}") for n in range(10))
    batch = [Rec(10, 2000, None, b'{"time":5}'), fragment(11, "k0")]
    visited = count_visits(monkeypatch)
    visits: list[int] = []
    left: Sequence[Record] = batch
    while left:
        before = len(visited)
        left = stream.turn(left, now_s=0.0, wall_ms=0, commit_s=None).left
        visits.append(len(visited) - before)

    assert len(visits) == 3
    assert max(visits) <= 4 + 1
    assert (stream.counts.markers, stream.position, len(stream.pending)) == (1, 12, 0)


@pytest.mark.parametrize("how", ["load", "bundle", "memory"])
@pytest.mark.parametrize("after", range(5))
@pytest.mark.parametrize("is_lost", [False, True])
def test_a_successor_delivers_the_other_parts(how: str, after: int, is_lost: bool) -> None:
    """Wherever the owner stops, and whether its last part is known to be stored or not."""
    log = [fragment(n, f"k{n % 7}") for n in range(14)] + [Rec(14, 1015, None, MARKER), fragment(15, "k3")]
    rng, store = random.Random(0), Store()
    owner = Owner(log, rng, store, StreamLimits())
    left = owner.stream.fold(log, 0.0)
    for _ in range(after):
        commit = take_one(owner.stream)
        if commit is not None:
            owner.stream.committed(commit, store.commit(commit, rng), 0.0)
        left = owner.stream.fold(left, 0.0)
    commit = take_one(owner.stream) if is_lost else None
    if commit is not None:
        store.commit(commit, rng)  # the answer is lost

    owner.stream = successor(owner, how)
    while owner.stream.position < len(log) or owner.stream.has_changes:
        owner.stream.fold(log[owner.stream.position :], 0.0)
        commit = take_one(owner.stream)
        if commit is not None:
            owner.stream.committed(commit, store.commit(commit, rng), 0.0)

    delivered = [parse_session(raw) for raw in store.sessions]
    assert sorted(session.key for session in delivered) == [f"k{n}" for n in range(7)]
    assert {len(session.data) for session in delivered} == {2}
    assert list(owner.stream.assembler.open) == ["k3"]
    assert owner.stream.counts.sessions == 7


@pytest.mark.parametrize("how", ["load", "bundle", "memory"])
@pytest.mark.parametrize("parts", range(5))
def test_a_successor_notices_that_the_record_that_closes_is_another(how: str, parts: int) -> None:
    """While parts are out, the position is still at the marker. A log that has lost it, whether it grew again
    or not, has lost what was committed.
    """
    log = [fragment(n, f"k{n}") for n in range(10)] + [Rec(10, 1015, None, MARKER)]
    rng, store = random.Random(0), Store()
    owner = Owner(log, rng, store, StreamLimits())
    owner.stream.fold(log[:10], 0.0)
    commit = take_one(owner.stream)
    while parts and commit is not None:
        owner.stream.committed(commit, store.commit(commit, rng), 0.0)
        owner.stream.fold(log[owner.stream.position :], 0.0)
        commit, parts = take_one(owner.stream), parts - 1
    is_out = owner.stream.head.position == 10 and bool(store.sessions)
    owner.log = log
    found = successor(owner, how)
    others = [*log[found.reads_from : 10], Rec(10, 2000, b"k", b"{}")]

    assert is_out == (found.head.closing == 1015)
    if found.head.position == 11:
        assert (found.head.closing, found.head.appended) == (-1, 1015)
        assert found.start(0, 11) == "as_stored"
    elif is_out:
        assert (found.start(0, 10), found.start(0, 11)) == ("rewind", "as_stored")
        with pytest.raises(LogLost, match="record at 10 was appended at 2000, not at 1015"):
            found.admit(others)


def take_one(stream: Stream) -> Commit | None:
    """The next part, if there is one; its outcome is not reported yet."""
    effects = stream.turn((), now_s=0.0, wall_ms=0, commit_s=0.0).effects
    return next((effect for effect in effects if isinstance(effect, Commit)), None)


def successor(owner: Owner, how: str) -> Stream:
    """The next owner's stream, from a hint where the stored head allows it."""
    hint = None
    if how == "bundle" and owner.stream.is_memory:
        hint = received(None, at_once(taking_delta(owner.stream, None)), StreamLimits())
    elif how == "memory":
        hint = owner.stream
    if hint is not None and is_valid(hint, owner.store.head or new_stream().head):
        hint.resume(2, 0.0)
        return hint
    return owner.load()


@pytest.mark.parametrize("room", [1, 5_000])
def test_parts_of_any_size_deliver_the_sessions_of_one_eager_fold(
    room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With random logs, batches, commits, crashes and moves."""
    monkeypatch.setattr(commits, "MAX_PENDING_BYTES", room)
    monkeypatch.setattr(marker_search, "SEARCHED_AT_ONCE", 2)

    assert not [text for seed in range(effort(700)) if (text := difference(seed))]


@virtual_time
async def test_a_worker_commits_every_part_without_waiting() -> None:
    """It reads on only after the last part, and the reader does not count as hanging meanwhile."""
    world = StreamWorld(LONG)
    worker, ended = world.start()
    for n in range(40):
        world.emit(f"k{n}")
    await world.until_committed()
    before, began_s = world.broker.commits, asyncio.get_running_loop().time()
    waiting: list[bool] = []

    def note(_: str, what: str, *__: object) -> None:
        if what == "commits":
            waiting.append(worker.is_waiting)

    world.broker.note = note

    world.close_all()
    await until(lambda: len(world.keys()) == 40)

    assert waiting == [True] * (40 // PART) + [False]
    assert world.broker.commits - before >= 40 // PART
    assert asyncio.get_running_loop().time() - began_s < 1.0
    assert world.rows() == world.expected()
    ended.cancel()


@pytest.mark.parametrize("seed", range(30))
@virtual_time
async def test_crashes_and_lost_answers_between_parts_neither_lose_nor_double(seed: int) -> None:
    """A new owner starts between any two parts of a large closing, again and again."""
    rng = random.Random(seed)
    world = StreamWorld(LONG)
    for n in range(60):
        world.emit(f"k{n % 20}")
    world.close_all()
    for n in range(20):
        world.emit(f"k{n}")
    world.close_all()
    for epoch in range(1, 12):
        world.broker.lose = [rng.choice(["before", "after"])] if rng.random() < 0.3 else []
        _, ended = world.start(epoch)
        stop_at = world.broker.commits + rng.choice([1, 2, 3, 5])
        await until(partial(is_reached, world, stop_at))
        ended.cancel()
        await asyncio.gather(ended, return_exceptions=True)
    world.broker.lose = []
    _, ended = world.start(99)
    await world.until_committed()

    assert world.rows() == world.expected()
    assert set(Counter(world.keys()).values()) == {2}
    ended.cancel()


def is_reached(world: StreamWorld, commits: int) -> bool:
    """Whether so many commits were made, or everything is committed."""
    return world.broker.commits >= commits or world.is_committed()


def count_visits(patch: pytest.MonkeyPatch) -> list[OpenSession]:
    """The sessions that are looked at one after another from here on, in any table of open sessions."""
    visited: list[OpenSession] = []
    values = OpenTable.values
    patch.setattr(OpenTable, "values", lambda table: noting(values(table), visited))
    return visited


def noting(sessions: Iterable[OpenSession], visited: list[OpenSession]) -> Iterator[OpenSession]:
    for session in sessions:
        visited.append(session)
        yield session


@pytest.mark.parametrize(("max_replay", "parked"), [(100_000, 0), (2_000, 500)])
def test_an_ordinary_commit_visits_what_changed_and_not_what_is_open(
    max_replay: int, parked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 1,000 open sessions it looks at the one that closes and at those that it parks."""
    stream = opened((), StreamLimits(max_replay_fragments=max_replay))
    parts_of(stream, [Rec(n, 1000, b"k%d" % n, b'{"key":"k%d"}' % n) for n in range(1_000)])
    state = stream.assembler
    assert len(state.open) == len(state.pinned) == 1_000
    visited = count_visits(monkeypatch)

    class Pinned(dict[str, OpenSession]):
        def values(self) -> Any:
            return noting(super().values(), visited)

    state.pinned = Pinned(state.pinned)

    (commit,) = parts_of(stream, [Rec(1_000, 1000, b"k5", b'{"key":"k5","end":true}')])

    assert keys([commit]) == ["k5"]
    assert len(visited) <= parked + 5
    assert sum(bool(session.parked) for session in state.open.unordered()) == parked


@pytest.mark.parametrize("record", [MARKER, b"{}"], ids=["marker", "silence"])
def test_a_turn_closes_a_bounded_number_of_sessions(record: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even with room for more, and the next turn goes on at once."""
    monkeypatch.setattr(commits, "MAX_PENDING_BYTES", 1_000_000)
    monkeypatch.setattr(fold, "CLOSED_AT_ONCE", 4)
    monkeypatch.setattr(marker_search, "CLOSED_AT_ONCE", 4)
    stream = opened(fragment(n, f"k{n}") for n in range(10))
    left: Sequence[Record] = [Rec(10, 2_000 + LONG.idle_ms * (record == b"{}"), None, record)]
    closed, waits = [0], []
    while closed[-1] < 10:
        turn = stream.turn(left, now_s=0.0, wall_ms=0, commit_s=1.0)
        left = turn.left
        closed.append(len(stream.pending))
        waits.append(turn.wait_s)

    assert closed == [0, 4, 8, 10]
    assert waits == [0.0, 0.0, 1.0]


def test_what_silence_has_ended_is_committed_before_anything_else_is_folded() -> None:
    """So it is never further behind than one batch, and the head says where nothing was left of it."""
    stream = opened(fragment(n, f"k{n}") for n in range(10))
    take(stream, stream.turn((), now_s=0.0, wall_ms=0, commit_s=0.0))
    late = 2_000 + LONG.idle_ms
    left: Sequence[Record] = [Rec(10, late, None, b"{}"), Rec(11, late, b"new", b'{"key":"new"}')]
    more = [Rec(12, late, b"next", b'{"key":"next"}')]
    heads = []
    while stream.position < 13:
        turn = stream.turn(left, now_s=0.0, wall_ms=0, commit_s=0.0)
        heads.append(take(stream, turn).head)
        left = turn.left or more

    assert [(head.silent_to, head.position, head.counts.sessions) for head in heads] == [
        (10, 12, 3),
        (10, 12, 6),
        (10, 12, 9),
        (12, 12, 10),
        (13, 13, 10),
    ]


def test_an_owner_that_dies_amid_the_parts_of_a_silence_leaves_word_of_it() -> None:
    """The next owner does not know more than the head, until nothing is left of it."""
    store, rng = Store(), random.Random(0)
    owner = Owner([fragment(n, f"k{n}") for n in range(10)], rng, store, StreamLimits())
    owner.log.append(Rec(10, 2_000, None, b"{}"))
    owner.stream.fold(owner.log, 0.0)
    owner.commit()
    assert store.head is not None
    before = store.head.silent_to, store.head.position

    heir = owner.load()
    heir.fold(owner.log[heir.position :], 0.0)
    for part in parts_of(heir, []):
        store.commit(part, rng)

    assert before == (0, 11)
    assert (store.head.silent_to, store.head.position) == (11, 11)
    assert len(store.sessions) == 10
