"""What operations would move, when they are done, and when they fail: tables and properties."""

from __future__ import annotations

import random
from dataclasses import replace

import msgspec
import pytest

from services.control.core.operations.forecasts import forecast, moves_for, situation_in
from services.control.core.operations.operation import (
    Operation,
    OperationUnderWay,
    begin,
    check_alone,
    follow,
)
from services.control.core.operations.wishes import MoveRefused, UnknownMember, Wish, check, pins_after
from services.control.core.report.observed import Answers
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
    """Stream, from and to of each forecast move."""
    moves = moves_for(wish, situation_in(group.observed, DEFAULT_GROUP))
    return [(found.stream, found.source, found.to) for found in moves]


def begun(wish: Wish, group: Group) -> Operation:
    """The operation before its effect is made."""
    return begin(forecast(wish, situation_in(group.observed, DEFAULT_GROUP)), "x", 5)


def seen(operation: Operation, group: Group, *, age_ms: float = 0) -> Operation:
    """The operation after one look at the group."""
    now = situation_in(group.observed, DEFAULT_GROUP)
    return follow(operation, now, at_ms=9, age_ms=age_ms, limit_ms=LIMIT_MS)


def pinned(count: int = 5) -> tuple[Group, Operation]:
    """A group in which stream 0 is pinned to b, which does not own it yet, and the operation of that move."""
    group = Group(count, "ab")
    operation = begun(move(0, "b"), group)
    group.pin({0: "b"})
    return group, operation


@pytest.mark.parametrize(
    ("wish", "group", "moves"),
    [
        pytest.param(move(0, "b"), (6, "ab"), [(0, "a", "b"), (5, "b", "a")], id="full shares: an exchange"),
        pytest.param(move(0, "b"), (5, "ab"), [(0, "a", "b")], id="the recipient has room"),
        pytest.param(move(0, "a"), (6, "ab"), [], id="to its owner: only the pin changes"),
        pytest.param(
            drain("a"), (6, "abc"), [(0, "a", "b"), (1, "a", "c")], id="no other member's streams move"
        ),
        pytest.param(drain("a"), (2, "a"), [(0, "a", None), (1, "a", None)], id="the last member"),
        pytest.param(REBALANCE, (6, "ab"), [], id="without pins"),
    ],
)
def test_a_forecast_is_the_difference_of_two_plans(
    wish: Wish, group: tuple[int, str], moves: list[tuple[int, str | None, str | None]]
) -> None:
    """It names the streams whose owner the operation changes, and no others."""
    assert moved(wish, Group(*group)) == moves


def test_moves_that_happen_anyway_are_not_in_the_forecast() -> None:
    """A member has just joined, and a third of the streams is on its way to it; one is unowned."""
    group = Group(6, "ab")
    group.member("c", MemberNode(address="http://c"))
    group.give(1, None)

    assert [found for found in moved(move(1, "c"), group) if found[0] == 1] == [(1, None, "c")]
    assert moved(REBALANCE, group) == []
    assert [found for found in moved(move(0, "c"), group) if found[0] == 0] == [(0, "a", "c")]


@pytest.mark.parametrize("has_answered", [True, False])
@pytest.mark.parametrize("silent", [set(), {"a"}])
def test_a_forecast_states_the_cost_in_sessions_and_bytes(silent: set[str], has_answered: bool) -> None:
    """The sums of what the owners report as open; null if one of them is silent, whatever it said before."""
    group = Group(6, "ab")
    answers = group.observed.answers
    group.silent = silent
    observed = group.observed
    if has_answered:
        silent_ones = observed.answers.silent
        observed = replace(observed, answers=Answers(statuses=answers.statuses, silent=silent_ones))

    found = forecast(drain("a"), situation_in(observed, DEFAULT_GROUP))

    cost = (found.totals.moves, found.totals.sessions, found.totals.bytes)
    assert cost == ((3, None, None) if silent else (3, 3 * SESSIONS, 3 * BYTES))
    each = (None, None) if silent else (SESSIONS, BYTES)
    assert [(move.sessions, move.bytes) for move in found.moves] == [each] * 3


@pytest.mark.parametrize("seed", range(200))
def test_an_operation_moves_what_was_forecast(seed: int) -> None:
    """For any group at rest, any pins and any wish, exactly the forecast streams change their owner."""
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
    assert (ended.state, ended.done, ended.why) == ("done", ended.total, "")
    assert ended.ended_at == (half.ended_at or 9)


def test_an_operation_is_pending_until_its_effect_shows() -> None:
    """An old view does not even prove that there is nothing to do."""
    group = Group(6, "ab")
    operation = begun(move(0, "a"), group)

    before = seen(operation, group)
    group.pin({0: "a"})
    group.states = {0: "opening"}
    opening = seen(before, group)
    group.states = {0: "rewind"}
    after = seen(opening, group)

    assert (before.state, opening.state, after.state) == ("pending", "running", "done")
    assert opening.why == "a does not report stream 0 as running yet"


def test_a_move_is_done_when_the_recipient_reports_the_stream_as_running() -> None:
    """The claim alone is not enough."""
    group, operation = pinned()
    started = seen(operation, group)
    group.give(0, None)
    released = seen(started, group)
    group.states = {0: "opening"}
    group.act()

    opening = seen(started, group)
    group.states = {}

    assert (started.state, started.done, started.why) == ("running", 0, "stream 0 is still with a")
    assert (released.state, released.why) == ("running", "b has not claimed stream 0 yet")
    assert (opening.state, opening.why) == ("running", "b does not report stream 0 as running yet")
    assert (seen(opening, group).state, seen(opening, group).done) == ("done", 1)


def test_a_drain_is_done_when_the_member_has_left() -> None:
    """Owning nothing is not enough. Where its streams went does not matter: others may have joined."""
    group = Group(4, "ab")
    operation = begun(drain("a"), group)
    before = seen(operation, group)
    group.member("a", MemberNode(address="", state="draining"))
    group.member("c", MemberNode(address="http://c"))
    for stream in group.view.streams_of("a"):
        group.give(stream, "c")

    lingering = seen(operation, group)
    group.act()

    assert before.state == "pending"
    assert (lingering.state, lingering.done, lingering.why) == ("running", 2, "a has not left yet")
    assert seen(lingering, group).state == "done"


def test_a_move_fails_when_its_recipient_goes() -> None:
    """It does not wait for the time limit."""
    group, operation = pinned()

    group.member("b", MemberNode(address="", state="draining"))
    draining = seen(operation, group)
    group.member("b", None)
    gone = seen(operation, group)

    assert (draining.state, gone.state, gone.ended_at) == ("failed", "failed", 9)
    assert draining.why == "b is draining; the pin stays, and takes effect when it returns"
    assert gone.why == "b has left; the pin stays, and takes effect when it returns"


def test_a_move_fails_when_its_pin_is_replaced() -> None:
    """Another operator decided otherwise."""
    group, operation = pinned()
    running = seen(operation, group)

    group.pin({0: "a"})

    assert running.state == "running"
    assert seen(running, group).why == "stream 0 is no longer pinned to b"


def test_a_rebalance_goes_on_when_another_pin_is_set() -> None:
    """Another operator's pin does not undo it: once its effect has shown, it waits for its streams alone."""
    group = Group(6, "ab")
    group.pin(dict.fromkeys(range(6), "b"))
    group.act()
    operation = begun(REBALANCE, group)
    group.pin({})
    running = seen(operation, group)

    group.pin({5: "b"})

    assert (running.state, seen(running, group).state) == ("running", "running")


def test_an_operation_fails_at_the_time_limit_with_what_it_waited_for() -> None:
    """It stays failed, even if the stream moves later. It names the first stream that it waited for."""
    group, operation = pinned(6)

    in_time = seen(operation, group, age_ms=LIMIT_MS)
    late = seen(operation, group, age_ms=LIMIT_MS + 1)
    group.act()

    assert in_time.state == "running"
    assert (late.state, late.ended_at) == ("failed", 9)
    assert late.why == "not done within 60 s: stream 0 is still with a"
    assert seen(late, group) == late


@pytest.mark.parametrize(
    ("wish", "error"),
    [
        (drain("z"), UnknownMember),
        (move(0, "z"), UnknownMember),
        (move(0, "c"), MoveRefused),
        (move(0, "d"), MoveRefused),
    ],
)
def test_an_impossible_wish_is_refused(wish: Wish, error: type[Exception]) -> None:
    """An unknown member; a recipient that is joining or draining."""
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
    """The stream that a move exchanges counts too; other groups and ended operations do not."""
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
    """Even if it owns nothing."""
    with pytest.raises(OperationUnderWay):
        check_alone(drain("b"), [], [begun(drain("b"), Group(1, "ab"))])
