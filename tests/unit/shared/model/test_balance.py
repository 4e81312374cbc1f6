"""The plan: examples, properties of random views, and a brute-force twin that tries every assignment."""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.model.balance import Plan, plan
from shared.model.cluster import ClaimNode, MemberNode, MemberState, StreamNode, View

K = TypeVar("K")
V = TypeVar("V")


def members(**states: MemberState) -> dict[str, MemberNode]:
    return {name: MemberNode(address="", state=state) for name, state in states.items()}


def active(names: str) -> dict[str, MemberNode]:
    return {name: MemberNode(address="") for name in names}


def claims(**streams: list[int]) -> dict[int, ClaimNode]:
    return {n: ClaimNode(member=name, epoch=1) for name, numbers in streams.items() for n in numbers}


def random_view(seed: int, count: int, names: str) -> View:
    """Any view, even an impossible one: claims of absent members, targets that drain, …"""
    rng = random.Random(seed)
    states: list[MemberState] = ["joining", "active", "active", "active", "draining"]
    present = {name: rng.choice(states) for name in names if rng.random() < 0.7}
    claims, nodes = {}, {}
    claimed, targeted, skewed = rng.random(), rng.random(), rng.choice(names)
    for stream in range(count):
        owner = rng.choice([skewed, *names])
        if rng.random() < claimed:
            claims[stream] = ClaimNode(member=owner, epoch=1)
        elif rng.random() < 0.8:
            target = rng.choice(names) if rng.random() < targeted else None
            nodes[stream] = StreamNode(epoch=1, owner=owner, target=target)
    pinned = rng.choice([0, 0, 0.2, 0.8])
    pins = {n: rng.choice([skewed, *names]) for n in range(count + 2) if rng.random() < pinned}
    return View(count=count, members=members(**present), claims=claims, nodes=nodes, pins=pins)


def views(max_count: int = 40, names: str = "abcdef") -> st.SearchStrategy[View]:
    """Views from seeds: a hundred times as fast as drawing their parts."""
    return st.builds(random_view, st.integers(0, 2**40), st.integers(1, max_count), st.just(names))


def holder(view: View, stream: int) -> str | None:
    """The active member that runs the stream or will: its claimer, else its target."""
    claim = view.claims.get(stream)
    name = claim.member if claim is not None else view.node(stream).target
    return name if name is not None and is_active(view, name) else None


def is_active(view: View, name: str) -> bool:
    return name in view.members and view.members[name].state == "active"


def pins_of(view: View) -> dict[int, str]:
    """The pins that have an effect."""
    return {n: name for n, name in view.pins.items() if n < view.count and is_active(view, name)}


def kept(view: View, owner: dict[int, str]) -> tuple[int, int]:
    """How many streams stay with their holder, and how many unowned ones return to their last owner."""
    held = sum(1 for n, name in owner.items() if holder(view, n) == name)
    back = sum(
        1
        for n, name in owner.items()
        if n not in view.claims and holder(view, n) is None and view.node(n).owner == name
    )
    return held, back


def best(view: View) -> tuple[int, int] | None:
    """The most streams that any assignment keeps, among those that are as even as the pins allow."""
    names = [name for name in sorted(view.members) if is_active(view, name)]
    pins = pins_of(view).items()
    results = []
    for owners in itertools.product(names, repeat=view.count):
        if all(owners[n] == name for n, name in pins):
            unevenness = sum(owners.count(name) ** 2 for name in names)
            results.append((-unevenness, kept(view, dict(enumerate(owners)))))
    return max(results)[1] if names else None


def fault_in(view: View) -> str | None:
    """The fault of a view's plan, if any, in its owners, quotas, pins or spread."""
    result = plan(view)
    names = [name for name in view.members if is_active(view, name)]
    shares = {name: len(result.streams_of(name)) for name in names}
    pins = pins_of(view)
    if list(result.owner) != (list(range(view.count)) if names else []):
        return "a stream without an owner"
    if not set(result.owner.values()) <= set(names):
        return "an owner that is not active"
    if shares != result.quota:
        return "shares that are not the quotas"
    if any(result.owner[n] != name for n, name in pins.items()):
        return "a pin without effect"
    pinned = Counter(pins.values())
    if any(share > min(shares.values()) + 1 and share > pinned[name] for name, share in shares.items()):
        return "more than its share without being pinned"
    return None


def test_a_draining_member_hands_over_all_its_streams() -> None:
    """The plan assigns them to the others, with the reason."""
    view = View(count=4, members=members(a="draining", b="active"), claims=claims(a=[0, 1], b=[2, 3]))

    result = plan(view)

    assert result.quota == {"b": 4}
    assert [(move.stream, move.target, move.why) for move in result.moves] == [
        (0, "b", "a is draining"),
        (1, "b", "a is draining"),
    ]


def test_a_target_above_its_share_keeps_what_was_released_to_it() -> None:
    """Moving that stream again before it runs would only lengthen its pause."""
    nodes = {2: StreamNode(epoch=1, owner="b", target="a")}

    result = plan(View(count=4, members=active("ab"), claims=claims(a=[0, 1], b=[3]), nodes=nodes))

    assert result.owner == {0: "a", 1: "b", 2: "a", 3: "b"}


@pytest.mark.parametrize("state", ["joining", "draining"])
def test_without_an_active_member_nothing_is_planned(state: MemberState) -> None:
    """No member could own a stream."""
    found = plan(View(count=3, members=members(a=state), claims=claims(a=[0])))

    assert (found, found.moves) == (Plan(owner={}, quota={}), ())


def test_a_pinned_stream_is_exchanged_for_another() -> None:
    """Its new owner gives up one of its own if it would exceed its share."""
    held = claims(a=[0, 1], b=[2, 3])

    result = plan(View(count=4, members=active("ab"), claims=held, pins={0: "b"}))

    assert [(move.stream, move.target, move.why) for move in result.moves] == [
        (0, "b", "pinned to b"),
        (3, "a", "b holds 3, its share is 2"),
    ]


@pytest.mark.parametrize("state", [None, "joining", "draining"])
def test_a_pin_has_no_effect_until_its_member_is_active(state: MemberState | None) -> None:
    """Nothing waits for an absent member; once it is active, the stream moves."""
    held, pins = claims(a=[0, 1], b=[2, 3]), {0: "c", 9: "a"}
    before = {"c": MemberNode(address="", state=state)} if state else {}

    without = plan(View(count=4, members=active("ab") | before, claims=held, pins=pins))
    joined = plan(View(count=4, members=active("abc"), claims=held, pins=pins))

    assert without.moves == ()
    assert [(move.stream, move.target) for move in joined.moves] == [(0, "c")]


@settings(max_examples=600, deadline=None)
@given(view=views())
def test_every_stream_has_one_active_owner_and_the_spread_is_as_small_as_pins_allow(view: View) -> None:
    """The floor for every member, one more for n mod c of them, and more only for pinned streams."""
    assert fault_in(view) is None


@settings(max_examples=300, deadline=None)
@given(view=views(), seed=st.integers(0, 2**40))
def test_one_more_pin_moves_two_streams_at_most(view: View, seed: int) -> None:
    """In a group at rest: the stream and one in exchange; removing the pin moves nothing."""
    owner = plan(replace(view, pins={})).owner
    if not owner:
        return
    rng = random.Random(seed)
    now = {n: ClaimNode(member=name, epoch=1) for n, name in owner.items()}
    rest = View(count=view.count, members=view.members, claims=now)
    pins = {rng.randrange(view.count): rng.choice(sorted(set(owner.values())))}

    pinned = plan(replace(rest, pins=pins))
    after = {n: ClaimNode(member=name, epoch=2) for n, name in pinned.owner.items()}

    assert len(pinned.moves) <= 2
    assert plan(replace(rest, claims=after)).moves == ()


@settings(max_examples=600, deadline=None)
@given(view=views(), seed=st.integers(0, 10**6))
def test_the_plan_is_the_same_whatever_the_order_of_the_view(view: View, seed: int) -> None:
    """Members that received the same facts in another order agree."""
    rng = random.Random(seed)

    def shuffled(mapping: Mapping[K, V]) -> dict[K, V]:
        return dict(rng.sample(list(mapping.items()), len(mapping)))

    other = View(
        count=view.count,
        members=shuffled(view.members),
        claims=shuffled(view.claims),
        nodes=shuffled(view.nodes),
        pins=shuffled(view.pins),
    )

    assert plan(other) == plan(view)


@settings(max_examples=500, deadline=None)
@given(view=views(max_count=6, names="abc"))
def test_no_assignment_moves_fewer_streams(view: View) -> None:
    """First as many streams as possible stay, then as many as possible return to their last owner."""
    result = plan(view)

    if result.owner:
        assert kept(view, dict(result.owner)) == best(view)


@settings(max_examples=600, deadline=None)
@given(view=views())
def test_a_plan_that_was_carried_out_plans_no_more_moves(view: View) -> None:
    """The plan is a fixed point: nothing oscillates."""
    result = plan(view)

    after = View(
        count=view.count,
        members=view.members,
        claims={n: ClaimNode(member=name, epoch=2) for n, name in result.owner.items()},
        pins=view.pins,
    )
    again = plan(after)

    assert again.owner == result.owner
    assert again.moves == ()


@settings(max_examples=600, deadline=None)
@given(view=views(), seed=st.integers(0, 2**40))
def test_any_part_of_a_plan_carried_out_leads_to_no_further_moves(view: View, seed: int) -> None:
    """While the members act one by one, the quotas stay and no further stream has to move.

    Which stream a member gives up may change when releases target more streams at it than its share.
    """
    result = plan(view)
    if not result.owner:
        return
    rng = random.Random(seed)
    claims, nodes = dict(view.claims), dict(view.nodes)
    for stream in rng.sample(range(view.count), rng.randint(0, view.count)):
        if rng.random() < 0.5:
            claims[stream] = ClaimNode(member=result.owner[stream], epoch=2)
        else:
            claims.pop(stream, None)
            nodes[stream] = StreamNode(epoch=2, owner="z", target=result.owner[stream])

    now = replace(view, claims=claims, nodes=nodes)
    again = plan(now)

    assert again.quota == result.quota
    moved = {n for n in again.owner if holder(now, n) not in (None, again.owner[n])}
    before = {n for n in result.owner if holder(view, n) not in (None, result.owner[n])}
    assert len(moved) <= len(before)


def test_a_large_view_is_planned_in_milliseconds() -> None:
    """4,096 streams, 50 members: every member plans after every change, so a plan must be cheap."""
    rng = random.Random(7)
    names = [f"member-{i}" for i in range(50)]
    view = View(
        count=4096,
        members={name: MemberNode(address="") for name in names},
        claims={n: ClaimNode(member=rng.choice(names), epoch=1) for n in range(4096)},
    )

    started_s = time.process_time()
    for _ in range(5):
        result = plan(view)

    assert len(result.owner) == 4096
    assert (time.process_time() - started_s) / 5 < 0.05
