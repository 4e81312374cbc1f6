"""What operations would move, when they are done, and when they have failed: tables and properties."""

from __future__ import annotations

import random

import msgspec
import pytest

from services.control.core.operations import (
    MoveRefused,
    Operation,
    OperationUnderWay,
    UnknownMember,
    Wish,
    begin,
    check,
    check_alone,
    follow,
    forecast,
    moves_for,
    pins_after,
    situation_in,
)
from shared.model.cluster import MemberNode
from shared.model.names import DEFAULT_GROUP
from tests.unit.control.operators_world import BYTES, SESSIONS, Group

LIMIT_MS = 60_000.0


def move(stream: int, to: str) -> Wish:
    return Wish(kind="move", group=DEFAULT_GROUP, stream=stream, to=to)


def drain(member: str) -> Wish:
    return Wish(kind="drain", group=DEFAULT_GROUP, member=member)


REBALANCE = Wish(kind="rebalance", group=DEFAULT_GROUP)


def moved(wish: Wish, group: Group) -> list[tuple[int, str | None, str | None]]:
    """Stream, from and to of what the wish would move."""
    moves = moves_for(wish, situation_in(group.observed, DEFAULT_GROUP))
    return [(found.stream, found.source, found.to) for found in moves]


def begun(wish: Wish, group: Group) -> Operation:
    """The operation, whose effect nobody has made yet."""
    return begin(wish, moves_for(wish, situation_in(group.observed, DEFAULT_GROUP)), "x", 5)


def seen(operation: Operation, group: Group, *, age_ms: float = 0) -> Operation:
    """The operation after one look at the group."""
    now = situation_in(group.observed, DEFAULT_GROUP)
    return follow(operation, now, at_ms=9, age_ms=age_ms, limit_ms=LIMIT_MS)


def test_a_move_takes_the_stream_and_gives_another_back_where_shares_are_full() -> None:
    """6 streams over 2 members: the recipient would have 4, so one of its own goes the other way."""
    assert moved(move(0, "b"), Group(6, "ab")) == [(0, "a", "b"), (5, "b", "a")]


def test_a_move_to_a_member_with_room_moves_one_stream() -> None:
    """5 streams over 2 members: the one with 2 takes a third."""
    assert moved(move(0, "b"), Group(5, "ab")) == [(0, "a", "b")]


def test_a_move_to_its_owner_moves_nothing() -> None:
    """The pin is all that it does."""
    assert moved(move(0, "a"), Group(6, "ab")) == []


def test_a_move_of_a_stream_that_nobody_owns_is_from_nobody() -> None:
    """It is claimed by the member that it is pinned to."""
    group = Group(5, "ab")
    group.give(0, None)

    assert moved(move(0, "b"), group) == [(0, None, "b")]


def test_a_drain_gives_every_stream_of_the_member_to_the_others() -> None:
    """And moves none of the others' streams."""
    assert moved(drain("a"), Group(6, "abc")) == [(0, "a", "b"), (1, "a", "c")]


def test_a_drain_of_the_last_member_leaves_its_streams_to_nobody() -> None:
    """They wait for the next member."""
    assert moved(drain("a"), Group(2, "a")) == [(0, "a", None), (1, "a", None)]


def test_a_rebalance_undoes_what_pins_have_made_uneven() -> None:
    """5 of 6 streams pinned to one member: it gives 2 back."""
    group = Group(6, "ab")
    group.pin(dict.fromkeys(range(5), "b"))
    group.act()

    assert [(source, to) for _, source, to in moved(REBALANCE, group)] == [("b", "a")] * 2


def test_what_moves_anyway_is_not_told_as_moved_by_the_operation() -> None:
    """A member has just come, and a third of the streams is on its way to it."""
    group = Group(6, "ab")
    group.member("c", MemberNode(address="http://c"))

    assert moved(REBALANCE, group) == []
    assert [found for found in moved(move(0, "c"), group) if found[0] == 0] == [(0, "a", "c")]


def test_a_forecast_tells_the_cost_in_sessions_and_bytes() -> None:
    """Those that the owners say they have open."""
    found = forecast(drain("a"), situation_in(Group(6, "ab").observed, DEFAULT_GROUP))

    assert (found.totals.moves, found.totals.sessions, found.totals.bytes) == (3, 3 * SESSIONS, 3 * BYTES)
    assert msgspec.to_builtins(found.moves[0]) == {
        "stream": 0,
        "from": "a",
        "to": "b",
        "sessions": SESSIONS,
        "bytes": BYTES,
    }


@pytest.mark.parametrize("seed", range(200))
def test_a_group_that_carries_an_operation_out_has_moved_what_was_foreseen(seed: int) -> None:
    """Whatever the group, its pins and the wish: from a group at rest just these streams change hands."""
    rng = random.Random(seed)
    group = Group(rng.randint(1, 20), "abcde"[: rng.randint(1, 5)])
    names = sorted(group.view.members)
    group.pin({n: rng.choice(names) for n in range(group.view.count) if rng.random() < 0.3})
    group.act()
    before = {n: group.owner(n) for n in range(group.view.count)}
    any_move = move(rng.randrange(group.view.count), rng.choice(names))
    wish = rng.choice([any_move, drain(rng.choice(names)), REBALANCE])
    operation = begun(wish, group)

    group.pin(pins_after(wish, group.view.pins))
    if wish.member is not None:
        node = msgspec.structs.replace(group.view.members[wish.member], state="draining")
        group.member(wish.member, node)
    half = seen(operation, group)
    group.act()
    after = {n: group.owner(n) for n in range(group.view.count)}
    ended = seen(half, group)

    assert half.state == ("running" if wish.member in names or operation.moves else "done")
    assert {n for n in after if after[n] != before[n]} == {found.stream for found in operation.moves}
    assert all(after[found.stream] == found.to for found in operation.moves)
    assert (ended.state, ended.done, ended.why, ended.ended_at) == (
        "done",
        ended.total,
        "",
        half.ended_at or 9,
    )


def test_an_operation_is_pending_until_its_effect_is_seen() -> None:
    """An old view tells nothing about it: not even that there is nothing to do."""
    group = Group(6, "ab")
    operation = begun(move(0, "a"), group)

    before = seen(operation, group)
    group.pin({0: "a"})
    after = seen(before, group)

    assert (before.state, after.state) == ("pending", "done")


def test_a_move_is_done_when_the_recipient_says_that_the_stream_runs() -> None:
    """The claim alone is not enough."""
    group = Group(5, "ab")
    operation = begun(move(0, "b"), group)
    group.pin({0: "b"})
    started = seen(operation, group)
    group.opening = {0}
    group.act()

    opening = seen(started, group)
    group.opening = set()

    assert (started.state, started.done, started.why) == ("running", 0, "stream 0 is still with a")
    assert (opening.state, opening.why) == ("running", "b does not report stream 0 as running yet")
    assert (seen(opening, group).state, seen(opening, group).done) == ("done", 1)


def test_a_drain_is_done_when_the_member_has_left() -> None:
    """Having nothing is not enough."""
    group = Group(4, "ab")
    operation = begun(drain("a"), group)
    group.member("a", MemberNode(address="", state="draining"))
    for stream in group.view.streams_of("a"):
        group.give(stream, "b")

    lingering = seen(operation, group)
    group.member("a", None)

    assert (lingering.state, lingering.done, lingering.why) == ("running", 2, "a has not left yet")
    assert seen(lingering, group).state == "done"


def test_a_drain_is_done_wherever_the_streams_went() -> None:
    """A member that came in between may have taken some of them."""
    group = Group(4, "ab")
    operation = begun(drain("a"), group)
    group.member("a", MemberNode(address="", state="draining"))
    group.member("c", MemberNode(address="http://c"))

    group.act()

    assert {group.owner(n) for n in range(4)} == {"b", "c"}
    assert seen(operation, group).state == "done"


@pytest.mark.parametrize(
    ("node", "why"),
    [
        (None, "b has left; the pin stays, and takes effect when it returns"),
        (
            MemberNode(address="", state="draining"),
            "b is draining; the pin stays, and takes effect when it returns",
        ),
    ],
)
def test_a_move_fails_when_its_recipient_goes(node: MemberNode | None, why: str) -> None:
    """Nobody waits for the time limit."""
    group = Group(5, "ab")
    operation = begun(move(0, "b"), group)
    group.pin({0: "b"})

    group.member("b", node)
    failed = seen(operation, group)

    assert (failed.state, failed.why, failed.ended_at) == ("failed", why, 9)


def test_a_move_fails_when_the_pin_is_taken_away() -> None:
    """Somebody else wanted otherwise."""
    group = Group(5, "ab")
    group.pin({0: "b"})
    running = seen(begun(move(0, "b"), group), group)

    group.pin({0: "a"})

    assert running.state == "running"
    assert seen(running, group).why == "stream 0 is no longer pinned to b"


def test_after_the_time_limit_an_operation_has_failed_with_what_it_waited_for() -> None:
    """And stays failed, even when the stream moves at last."""
    group = Group(5, "ab")
    operation = begun(move(0, "b"), group)
    group.pin({0: "b"})

    in_time = seen(operation, group, age_ms=LIMIT_MS)
    late = seen(operation, group, age_ms=LIMIT_MS + 1)
    group.act()

    assert in_time.state == "running"
    assert (late.state, late.why) == ("failed", "not done within 60 s: stream 0 is still with a")
    assert seen(late, group) == late


@pytest.mark.parametrize(
    ("wish", "error"),
    [
        (drain("z"), UnknownMember),
        (move(0, "z"), MoveRefused),
        (move(0, "c"), MoveRefused),
        (move(0, "d"), MoveRefused),
    ],
)
def test_what_cannot_be_is_refused(wish: Wish, error: type[Exception]) -> None:
    """Nobody of that name; a recipient that is gone, joining or draining."""
    group = Group(4, "ab")
    group.member("c", MemberNode(address="", state="joining"))
    group.member("d", MemberNode(address="", state="draining"))

    with pytest.raises(error):
        check(wish, group.view)


@pytest.mark.parametrize(
    ("wish", "is_refused"),
    [
        (move(0, "c"), True),
        (move(5, "b"), True),
        (move(1, "c"), False),
        (drain("a"), True),
        (drain("c"), False),
        (REBALANCE, False),
    ],
)
def test_a_stream_is_moved_by_one_operation_at_a_time(wish: Wish, is_refused: bool) -> None:
    """The exchange of a move counts too; other groups and ended operations do not."""
    group = Group(9, "abc")
    other = begun(move(0, "b"), group)
    assert [found.stream for found in other.moves] == [0, 5]
    moves = moves_for(wish, situation_in(group.observed, DEFAULT_GROUP))

    if is_refused:
        with pytest.raises(OperationUnderWay):
            check_alone(wish, moves, [other])
    else:
        check_alone(wish, moves, [other])
    check_alone(wish, moves, [msgspec.structs.replace(other, state="failed")])
    check_alone(wish, moves, [msgspec.structs.replace(other, group="another")])


def test_a_member_is_drained_by_one_operation_at_a_time() -> None:
    """Also when it has nothing to give."""
    group = Group(1, "ab")
    assert group.view.streams_of("b") == []

    with pytest.raises(OperationUnderWay):
        check_alone(drain("b"), [], [begun(drain("b"), group)])


def test_a_silent_owner_costs_what_is_not_known() -> None:
    """Its streams are counted, without sessions and bytes."""
    group = Group(4, "ab")
    group.silent = {"a"}

    found = forecast(drain("a"), situation_in(group.observed, DEFAULT_GROUP))

    assert (found.totals.moves, found.totals.sessions) == (2, 0)


def test_pins_of_others_stay() -> None:
    """A move replaces the stream's pin, a drain takes the member's, a rebalance all."""
    pins = {0: "a", 1: "b", 2: "a"}

    assert pins_after(move(1, "a"), pins) == {0: "a", 1: "a", 2: "a"}
    assert pins_after(drain("a"), pins) == {1: "b"}
    assert pins_after(REBALANCE, pins) == {}
