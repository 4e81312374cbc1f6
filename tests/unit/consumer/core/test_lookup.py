"""A look into a stream reports what the fold holds, changes nothing, and stays small."""

from __future__ import annotations

import random

import msgspec
import pytest

from services.consumer.core.commits.checkpoint import new_stream
from services.consumer.core.commits.held import held_key, looking_over, newest_of
from services.consumer.core.commits.stream import Stream
from services.consumer.core.commits.turn import StreamLimits
from services.consumer.core.sessions.open_table import OpenTable
from services.consumer.core.slices import SLICE, at_once
from shared.model.group import GroupSettings
from shared.model.open_sessions import MOST_FRAGMENT_BYTES, MOST_FRAGMENTS, SHOWN, OpenSessionRow
from tests.logs import SETTINGS, fragment, owner_of, random_log
from tests.reference import Rec, RefSession, fold_eagerly

LONG = GroupSettings()
"""Nothing ends by silence within a random log, so the lazy fold has open what the eager one has."""


def stream_of(log: list[Rec], settings: GroupSettings = LONG) -> Stream:
    """A stream that has read the log."""
    stream = Stream(
        group="g",
        stream=3,
        epoch=7,
        settings=settings,
        limits=StreamLimits(),
        checkpoint=new_stream(),
        now_s=0.0,
    )
    stream.fold(log, 0.0)
    return stream


def row_for(session: RefSession) -> OpenSessionRow:
    """How the reference's session is reported."""
    return OpenSessionRow(
        key=session.key,
        first_offset=session.offsets[0],
        last_offset=session.offsets[-1],
        first_time=min(session.times),
        last_time=max(session.times),
        opened_at=session.opened_at,
        last_at=session.last_a,
        fragments=len(session.values),
        bytes=sum(map(len, session.values)),
        parked=False,
        silent_after=session.w + LONG.gap_ms + LONG.lateness_ms,
        idle_after=session.last_a + LONG.idle_ms,
    )


@pytest.mark.parametrize("seed", range(50))
def test_a_look_reports_the_open_sessions_of_the_log(seed: int) -> None:
    """Of every key, as a plain fold has them; a key without one has none."""
    log = random_log(random.Random(seed))
    stream, opened = stream_of(log), {one.key: one for one in fold_eagerly(log, LONG)[1]}

    for key in ["nobody", *(f"k{n}" for n in range(5))]:
        held = held_key(stream, key)
        assert held.open == (row_for(opened[key]) if key in opened else None)
        assert held.data == ([raw.decode() for raw in opened[key].values] if key in opened else [])
    held_stream = at_once(looking_over(stream))
    assert held_stream.open_sessions == len(opened)
    assert held_stream.oldest == sorted(map(row_for, opened.values()), key=lambda row: row.first_offset)
    assert {row.key for row in held_stream.heaviest} == set(opened)


def test_a_look_says_where_the_stream_is() -> None:
    """Its owner's epoch and position, W and A, and the last record that was set aside."""
    stream = stream_of([fragment(0, "k"), Rec(1, 5000, None, b"poison"), fragment(2, "k")])

    held = at_once(looking_over(stream))

    assert (held.stream, held.epoch, held.position, held.w, held.a) == (3, 7, 3, 1002, 5000)
    assert held.last_unreadable is not None
    assert held.last_unreadable.offset == 1
    assert "neither a marker nor a tick" in held.last_unreadable.why
    assert at_once(looking_over(stream_of([]))).last_unreadable is None


@pytest.mark.parametrize(("late", "is_open"), [(0, True), (1, False)])
def test_silence_ends_a_session_after_the_time_that_is_reported(late: int, is_open: bool) -> None:
    """An event time of another key at `silent_after` does not end it; one above does."""
    settings = msgspec.structs.replace(SETTINGS, idle_ms=10_000, future_ms=10_000)
    log = [fragment(0, "k")]
    row = held_key(stream_of(log, settings), "k").open
    assert row is not None

    time = row.silent_after + late
    log.append(Rec(1, 1001, b"other", msgspec.json.encode({"key": "other", "time": time})))
    stream = stream_of(log, settings)
    stream.turn((), now_s=0.0, wall_ms=0, commit_s=None)

    assert (held_key(stream, "k").open is not None) == is_open


@pytest.mark.parametrize(("late", "is_open"), [(0, True), (1, False)])
def test_idleness_ends_a_session_after_the_time_that_is_reported(late: int, is_open: bool) -> None:
    """A tick that was appended at `idle_after` does not end it; one above does."""
    row = held_key(stream_of([fragment(0, "k")], SETTINGS), "k").open
    assert row is not None

    stream = stream_of([fragment(0, "k"), Rec(1, row.idle_after + late, None, b"{}")], SETTINGS)
    stream.turn((), now_s=0.0, wall_ms=0, commit_s=None)

    assert (held_key(stream, "k").open is not None) == is_open


def test_a_look_at_much_is_sliced_and_reports_the_ends_of_the_order() -> None:
    """The oldest by first offset, the heaviest by bytes, whatever came in between."""
    count = 3 * SLICE
    log = [fragment(n, f"k{n}", size=n % 50) for n in range(count)]
    late = (1, 3, 7, 8, 12)
    log += [fragment(count + n, f"k{key}", size=300) for n, key in enumerate(late)]  # now last in the table
    stream, slices = stream_of(log), 0
    state = stream.assembler
    state.open = OpenTable(state.open.values())  # in order of last fragments, as a checkpoint restores them
    looking = looking_over(stream)
    while True:
        try:
            next(looking)
        except StopIteration as end:
            held = end.value
            break
        slices += 1

    assert slices > 3
    assert [row.key for row in held.oldest] == [f"k{n}" for n in range(SHOWN)]
    assert {row.key for row in held.heaviest[:5]} == {f"k{key}" for key in late}
    assert held.heaviest == sorted(held.heaviest, key=lambda row: -row.bytes)


def test_a_session_that_ends_during_the_look_is_not_reported() -> None:
    """The stream goes on between two slices."""
    stream = stream_of([fragment(n, f"k{n}") for n in range(SLICE + 1)])
    looking = looking_over(stream)
    next(looking)
    next(looking)

    stream.fold([Rec(SLICE + 1, 9000, b"k0", b'{"key":"k0","end":true}')], 0.0)
    held = at_once(looking)

    assert [row.key for row in held.oldest] == [f"k{n}" for n in range(1, SHOWN)]


def test_a_parked_session_says_so() -> None:
    """Once a commit has put its fragments into the checkpoint."""
    owner = owner_of(fragment(0, "k"))
    session = owner.stream.assembler.open["k"]
    before = held_key(owner.stream, "k").open
    session.mark_parked()
    after = held_key(owner.stream, "k").open

    assert before is not None
    assert after is not None
    assert (before.parked, after.parked) == (False, True)


def test_an_answer_has_the_newest_fragments_and_a_bounded_size() -> None:
    """Whole fragments; the newest one is there however large it is."""
    many = [b"%d" % n for n in range(3 * MOST_FRAGMENTS)]
    large = [b"x" * (MOST_FRAGMENT_BYTES // 3)] * 5

    assert newest_of(many) == many[-MOST_FRAGMENTS:]
    assert newest_of(large) == large[:3]
    assert newest_of([b"x" * 2 * MOST_FRAGMENT_BYTES]) == [b"x" * 2 * MOST_FRAGMENT_BYTES]
    assert newest_of([]) == []
