"""What a member does about a view: each rule alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import pytest

from services.consumer.core.ownership.decide import (
    Adopt,
    Claim,
    Drop,
    Effect,
    HandOver,
    Release,
    Running,
    decide,
)
from services.consumer.core.ownership.observations import Observations, OwnershipSettings, observe
from shared.model.balance import plan
from shared.model.cluster import ClaimNode, MemberNode, MemberState, StreamNode, View

SETTINGS = OwnershipSettings(steady_ms=0, moves_at_once=8)
OLD_MS = 60_000
"""The age of a ZooKeeper session that has settled."""


def members(**states: MemberState) -> dict[str, MemberNode]:
    return {name: MemberNode(address=f"http://{name}", state=state) for name, state in states.items()}


def claimed(member: str, *streams: int, epoch: int = 1) -> dict[int, ClaimNode]:
    return {n: ClaimNode(member=member, epoch=epoch) for n in streams}


def decided(
    view: View,
    me: str,
    running: Mapping[int, int] | Mapping[int, Running] | None = None,
    *,
    busy: Collection[int] = (),
    unowned_ms: int = 0,
    session_age_ms: int = OLD_MS,
    settings: OwnershipSettings = SETTINGS,
    shunned: Collection[str] = (),
    moves_left: int = 1000,
) -> list[Effect]:
    """What `me` does when all unowned streams of the view have been so for `unowned_ms`; `running`: stream →
    epoch, or more of it.
    """
    if running is None:
        running = {n: view.claims[n].epoch for n in view.streams_of(me)}
    runs = {n: run if isinstance(run, Running) else Running(epoch=run) for n, run in running.items()}
    observed = observe(observe(Observations(), view, 1000, settings), view, 1000 + unowned_ms, settings)
    return decide(
        view,
        me,
        runs,
        busy=busy,
        session_age_ms=session_age_ms,
        observed=observed,
        settings=settings,
        shunned=shunned,
        moves_left=moves_left,
    )


def test_a_planned_stream_is_claimed_at_once_and_no_other() -> None:
    """Of two fresh streams each member claims its own."""
    view = View(count=2, members=members(a="active", b="active"))

    assert decided(view, "a") == [Claim(stream=0, why="never owned")]
    assert decided(view, "b") == [Claim(stream=1, why="never owned")]


def test_what_is_under_way_is_left_alone() -> None:
    """No effect is given twice: not for claims, openings, releases under way."""
    view = View(count=3, members=members(a="active"), claims=claimed("a", 1))

    assert decided(view, "a", {}, busy={0, 1}) == [Claim(stream=2, why="never owned")]
    assert decided(view, "a", {1: 7}, busy={0, 1, 2}) == []


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({}, "the claim is gone"),
        (claimed("b", 0), "claimed by b"),
        (claimed("a", 0, epoch=2), "claimed in another epoch"),
    ],
)
def test_a_stream_is_dropped_when_the_claim_is_not_that_of_the_run(
    claims: dict[int, ClaimNode], why: str
) -> None:
    """Running without the claim, or on the claim of another epoch, stops first of all."""
    view = View(count=1, members=members(a="active", b="active"), claims=claims)

    assert decided(view, "a", {0: 1})[0] == Drop(stream=0, why=why)


def test_an_own_claim_that_is_not_run_is_taken_up() -> None:
    """A claim that was won without an answer is not forgotten."""
    view = View(count=1, members=members(a="active"), claims=claimed("a", 0, epoch=5))

    assert decided(view, "a", {}) == [Adopt(stream=0, epoch=5)]


def test_a_member_that_is_not_in_the_view_claims_and_releases_nothing() -> None:
    """It has to join first; what it has lost it drops all the same."""
    view = View(count=3, members=members(b="active"), claims=claimed("a", 0))

    assert decided(view, "a", {0: 1, 1: 1}) == [Drop(stream=1, why="the claim is gone")]


def test_a_stream_above_the_share_is_handed_over_to_the_planned_member() -> None:
    """With the reason, and only as many as needed."""
    view = View(count=4, members=members(a="active", b="active"), claims=claimed("a", 0, 1, 2, 3))

    effects = decided(view, "a")

    why = "the share of a is 2 of 4"
    assert effects == [HandOver(stream=n, epoch=1, target="b", why=why) for n in (2, 3)]
    assert decided(view, "b", {}) == []


def test_a_draining_member_hands_everything_over_and_claims_nothing() -> None:
    """Live where it can; by a release what it does not run, or not yet at the end, or failed to hand over;
    without anybody there the target is nobody.
    """
    together = View(count=5, members=members(a="draining", b="active"), claims=claimed("a", 0, 1, 2, 3))
    alone = View(count=3, members=members(a="draining"), claims=claimed("a", 0))
    runs = {
        0: Running(epoch=1, rests=True),
        1: Running(epoch=1, is_ready=False),
        2: Running(epoch=1, failed=True),
    }

    effects = decided(together, "a", runs, shunned={"b"}, moves_left=0)

    assert effects[0] == HandOver(stream=0, epoch=1, target="b", why="draining")
    assert effects[1:] == [Release(stream=n, epoch=1, target="b", why="draining") for n in (1, 2, 3)]
    assert decided(alone, "a") == [Release(stream=0, epoch=1, target=None, why="draining")]


def test_moves_come_a_few_at_a_time() -> None:
    """Those under way count, and no more begin than are left for this second."""
    settings = OwnershipSettings(moves_at_once=3, steady_ms=0)
    view = View(count=20, members=members(a="active", b="active"), claims=claimed("a", *range(20)))

    assert len(decided(view, "a", settings=settings)) == 3
    assert len(decided(view, "a", settings=settings, moves_left=2)) == 2
    assert len(decided(view, "a", settings=settings, busy={10, 11})) == 1
    assert len(decided(view, "a", settings=settings, busy={10, 11, 12, 13})) == 0


@pytest.mark.parametrize(
    "run",
    [
        Running(epoch=1, is_ready=False),
        Running(epoch=1, rests=True),
    ],
)
def test_a_stream_that_cannot_be_copied_or_has_just_come_stays(run: Running) -> None:
    """Only a drain moves it, and what rests an operator's pin."""
    view = View(count=2, members=members(a="active", b="active"), claims=claimed("a", 0, 1))

    pinned = replace(view, pins={1: "b"})

    assert decided(view, "a", {0: Running(epoch=1), 1: run}) == []
    assert len(decided(pinned, "a", {0: Running(epoch=1), 1: run})) == (1 if run.rests else 0)


def test_a_member_that_refused_gets_no_offer_for_a_while() -> None:
    """The stream goes on where it is."""
    view = View(count=2, members=members(a="active", b="active"), claims=claimed("a", 0, 1))

    assert decided(view, "a", shunned={"b"}) == []
    assert len(decided(view, "a", shunned={"c"})) == 1


def test_who_comes_and_goes_is_given_nothing_until_it_stays() -> None:
    """At first `steady_ms`, twice as long for each return; the address counts, not the name."""
    settings = OwnershipSettings(steady_ms=500)
    there = View(count=2, members=members(a="active", b="active"), claims=claimed("a", 0, 1))
    gone = View(count=2, members=members(a="active"), claims=claimed("a", 0, 1))

    def moves(observed: Observations) -> int:
        runs = {0: Running(epoch=1), 1: Running(epoch=1)}
        effects = decide(there, "a", runs, session_age_ms=OLD_MS, observed=observed, settings=settings)
        return len(effects)

    observed = observe(Observations(), there, 1000, settings)
    assert moves(observe(observed, there, 1499, settings)) == 0
    assert moves(observe(observed, there, 1500, settings)) == 1

    back = observe(observe(observed, gone, 2000, settings), there, 3000, settings)
    assert moves(observe(back, there, 3999, settings)) == 0
    assert moves(observe(back, there, 4000, settings)) == 1


def test_openings_are_bounded_but_not_those_of_what_is_meant_for_the_member() -> None:
    """So a member that starts alone leaves streams to those who come a moment later."""
    settings = OwnershipSettings(openings_at_once=4)
    meant = {n: StreamNode(epoch=1, owner="b", target="a") for n in range(3)}
    view = View(count=20, members=members(a="active"), claims=claimed("a", 19), nodes=meant)

    effects = decided(view, "a", {19: Running(epoch=1, is_ready=False)}, busy={18}, settings=settings)

    assert [effect.stream for effect in effects] == [0, 1, 2, 3, 4]


def test_after_a_grace_another_member_claims_what_the_planned_one_leaves() -> None:
    """First the one that a plan without the absent names, after two graces anybody."""
    view = View(
        count=3,
        members=members(a="active", b="active", c="active"),
        claims=claimed("a", 0) | claimed("c", 2),
    )
    assert plan(view).owner[1] == "b"

    early = [decided(view, me, unowned_ms=4999) for me in "ac"]
    grace = [decided(view, me, unowned_ms=5000) for me in "ac"]
    late = [decided(view, me, unowned_ms=10_000) for me in "ac"]

    assert early == [[], []]
    assert grace == [[Claim(stream=1, why="unowned for 5000 ms")], []]
    assert late == [[Claim(stream=1, why="unowned for 10000 ms")]] * 2


def test_a_member_that_let_its_turn_pass_is_given_no_running_stream_for_a_while() -> None:
    """So that a stream taken from a hung member is not given back to it at once."""
    unowned = View(count=2, members=members(a="active", b="active"), claims=claimed("a", 0))
    taken = View(count=2, members=members(a="active", b="active"), claims=claimed("a", 0, 1))
    observed = observe(observe(Observations(), unowned, 0, SETTINGS), unowned, 5000, SETTINGS)

    def effects_at(now_ms: int) -> list[Effect]:
        return decide(
            taken,
            "a",
            {0: Running(epoch=1), 1: Running(epoch=1)},
            session_age_ms=OLD_MS,
            observed=observe(observed, taken, now_ms, SETTINGS),
            settings=SETTINGS,
        )

    assert observed.passed == {"b": 5000}
    assert effects_at(64_999) == []
    why = "the share of a is 1 of 2"
    assert effects_at(65_000) == [HandOver(stream=1, epoch=1, target="b", why=why)]


def test_a_young_zookeeper_session_claims_only_what_is_its_own_or_nobodys() -> None:
    """When ZooKeeper was gone for everybody, nobody takes what others come back for."""
    nodes = {
        0: StreamNode(epoch=1, owner="a"),
        1: StreamNode(epoch=1, owner="b", target="a"),
        2: StreamNode(epoch=1, owner="b"),
        3: StreamNode(epoch=1, owner="b"),
    }
    view = View(count=5, members=members(a="active"), nodes=nodes)

    young = decided(view, "a", session_age_ms=2999)
    settled = decided(view, "a", session_age_ms=3000)

    assert young == [
        Claim(stream=0, why="the last owner comes back"),
        Claim(stream=1, why="released to a by b"),
        Claim(stream=4, why="never owned"),
    ]
    assert settled == [
        *young[:2],
        Claim(stream=2, why="b is gone"),
        Claim(stream=3, why="b is gone"),
        young[2],
    ]


def test_a_stream_is_unowned_since_it_was_first_seen_so_without_a_break() -> None:
    """A claim in between begins a new count."""
    unowned = View(count=2, members=members(a="active"))
    owned = View(count=2, members=members(a="active"), claims=claimed("a", 1))

    observed = observe(Observations(), unowned, 10, SETTINGS)
    observed = observe(observed, owned, 20, SETTINGS)
    observed = observe(observed, unowned, 30, SETTINGS)

    assert observed.unowned_since == {0: 10, 1: 30}
