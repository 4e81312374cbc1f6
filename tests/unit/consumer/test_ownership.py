"""What a member does about a view: each rule alone, and all members together in a small world."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping

import pytest

from services.consumer.core.balance import plan
from services.consumer.core.ownership import (
    Adopt,
    Claim,
    Drop,
    Effect,
    OwnershipSettings,
    Release,
    Seen,
    decide,
    look,
)
from shared.cluster import ClaimNode, MemberNode, MemberState, StreamNode, View

SETTINGS = OwnershipSettings()
OLD_MS = 60_000
"""The age of a ZooKeeper session that has settled."""


def members(**states: MemberState) -> dict[str, MemberNode]:
    return {name: MemberNode(address=f"http://{name}", state=state) for name, state in states.items()}


def claimed(member: str, *streams: int, epoch: int = 1) -> dict[int, ClaimNode]:
    return {n: ClaimNode(member=member, epoch=epoch) for n in streams}


def decided(
    view: View,
    me: str,
    running: Mapping[int, int] | None = None,
    *,
    busy: Collection[int] = (),
    unowned_ms: int = 0,
    session_age_ms: int = OLD_MS,
    settings: OwnershipSettings = SETTINGS,
) -> list[Effect]:
    """What `me` does when all unowned streams of the view have been so for `unowned_ms`."""
    seen = look(look(Seen(), view, 1000, settings), view, 1000 + unowned_ms, settings)
    return decide(
        view,
        me,
        running if running is not None else {n: view.claims[n].epoch for n in view.streams_of(me)},
        busy=busy,
        session_age_ms=session_age_ms,
        seen=seen,
        settings=settings,
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


def test_a_stream_above_the_share_is_released_to_the_planned_member() -> None:
    """With the reason, and only as many as needed."""
    view = View(count=4, members=members(a="active", b="active"), claims=claimed("a", 0, 1, 2, 3))

    effects = decided(view, "a")

    assert effects == [Release(stream=n, epoch=1, target="b", why="its share is 2 of 4") for n in (2, 3)]
    assert decided(view, "b", {}) == []


def test_a_draining_member_releases_everything_and_claims_nothing() -> None:
    """Also what it holds and does not run; without anybody there the target is nobody."""
    together = View(count=3, members=members(a="draining", b="active"), claims=claimed("a", 0, 1))
    alone = View(count=3, members=members(a="draining"), claims=claimed("a", 0))

    assert decided(together, "a", {0: 1}) == [
        Release(stream=n, epoch=1, target="b", why="draining") for n in (0, 1)
    ]
    assert decided(alone, "a") == [Release(stream=0, epoch=1, target=None, why="draining")]


def test_releases_come_a_few_at_a_time() -> None:
    """Those under way count."""
    settings = OwnershipSettings(releases_at_once=3)
    view = View(count=20, members=members(a="active", b="active"), claims=claimed("a", *range(20)))

    assert len(decided(view, "a", settings=settings)) == 3
    assert len(decided(view, "a", settings=settings, busy={10, 11})) == 1
    assert len(decided(view, "a", settings=settings, busy={10, 11, 12, 13})) == 0


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
    seen = look(look(Seen(), unowned, 0, SETTINGS), unowned, 5000, SETTINGS)

    def effects_at(now_ms: int) -> list[Effect]:
        return decide(
            taken,
            "a",
            {0: 1, 1: 1},
            session_age_ms=OLD_MS,
            seen=look(seen, taken, now_ms, SETTINGS),
            settings=SETTINGS,
        )

    assert seen.passed == {"b": 5000}
    assert effects_at(64_999) == []
    assert effects_at(65_000) == [Release(stream=1, epoch=1, target="b", why="its share is 1 of 2")]


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

    seen = look(Seen(), unowned, 10, SETTINGS)
    seen = look(seen, owned, 20, SETTINGS)
    seen = look(seen, unowned, 30, SETTINGS)

    assert seen.unowned_since == {0: 10, 1: 30}


class World:
    """Members that carry out their effects one by one in random order, on the truth as of that moment."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.count = self.rng.randint(1, 30)
        self.now_ms = 0
        self.members: dict[str, MemberNode] = {}
        self.claims: dict[int, ClaimNode] = {}
        self.nodes: dict[int, StreamNode] = {}
        self.since_ms: dict[str, int] = {}
        self.seen: dict[str, Seen] = {}
        self.hung: set[str] = set()
        self.claimed = 0

    def view(self) -> View:
        return View(
            count=self.count,
            members=dict(self.members),
            claims=dict(self.claims),
            nodes={n: node for n, node in self.nodes.items() if n not in self.claims},
        )

    def join(self, name: str) -> None:
        self.members[name] = MemberNode(address=f"http://{name}")
        self.since_ms[name] = self.now_ms
        self.seen[name] = Seen()

    def die(self, name: str) -> None:
        del self.members[name]
        self.hung.discard(name)
        self.claims = {n: claim for n, claim in self.claims.items() if claim.member != name}

    def step(self, name: str) -> list[Effect]:
        """One member looks at the world and does all that it decides."""
        view = self.view()
        self.seen[name] = look(self.seen[name], view, self.now_ms, SETTINGS)
        effects = decide(
            view,
            name,
            {n: view.claims[n].epoch for n in view.streams_of(name)},
            session_age_ms=self.now_ms - self.since_ms[name],
            seen=self.seen[name],
            settings=SETTINGS,
        )
        for effect in effects:
            epoch = self.nodes.get(effect.stream, StreamNode()).epoch
            match effect:
                case Claim(stream=stream):
                    assert stream not in self.claims
                    self.claimed += 1
                    self.claims[stream] = ClaimNode(member=name, epoch=epoch + 1)
                    self.nodes[stream] = StreamNode(epoch=epoch + 1, owner=name)
                case Release(stream=stream, target=target):
                    del self.claims[stream]
                    self.nodes[stream] = StreamNode(epoch=epoch, owner=name, seq=1, target=target)
                case _:
                    raise AssertionError(effect)
        return effects

    def settle(self) -> None:
        """Lets the members act until they have been still for 12 s; fails when that takes minutes."""
        still_since_ms, end_ms = self.now_ms, self.now_ms + 300_000
        while self.now_ms - still_since_ms < 12_000:
            assert self.now_ms < end_ms, "the members do not come to rest"
            self.now_ms += self.rng.randint(1, 1500)
            for name in self.rng.sample(sorted(self.members), len(self.members)):
                if name not in self.hung and self.step(name):
                    still_since_ms = self.now_ms


@pytest.mark.parametrize("seed", range(80))
def test_members_that_come_go_and_drain_always_come_to_rest_in_the_plan(seed: int) -> None:
    """Whatever happens, in the end every stream has one owner, the spread is 1, and nothing moves."""
    world = World(seed)
    world.join("m0")
    for number in range(1, 8):
        happening = world.rng.choice(["join", "join", "die", "drain", "all die and come back"])
        name = world.rng.choice(sorted(world.members))
        if happening == "join":
            world.join(f"m{number}")
        elif happening == "die" and len(world.members) > 1:
            world.die(name)
        elif happening == "drain" and len(world.members) > 1:
            world.members[name] = MemberNode(address="", state="draining")
            while world.step(name):
                pass
            world.die(name)
        elif happening == "all die and come back":
            names = sorted(world.members)
            for each in names:
                world.die(each)
            for each in world.rng.sample(names, len(names)):
                world.join(each)
        if world.rng.random() < 0.5:
            world.settle()

    world.settle()

    view = world.view()
    assert {n: claim.member for n, claim in view.claims.items()} == plan(view).owner
    assert plan(view).moves == ()


@pytest.mark.parametrize("seed", range(15))
def test_when_zookeeper_was_gone_for_everybody_nobody_evacuates(seed: int) -> None:
    """All come back within the settle time: each claims what it had, and no stream changes its owner."""
    world = World(seed)
    names = [f"m{i}" for i in range(world.rng.randint(1, 6))]
    for name in names:
        world.join(name)
    world.settle()
    before = {n: claim.member for n, claim in world.claims.items()}

    for name in names:
        world.die(name)
    for name in world.rng.sample(names, len(names)):
        world.now_ms += world.rng.randint(0, 400)
        world.join(name)
        world.step(name)
    world.settle()

    assert {n: claim.member for n, claim in world.claims.items()} == before
    assert world.claimed == 2 * world.count


@pytest.mark.parametrize("seed", range(15))
def test_a_hung_member_costs_a_grace_and_its_streams_do_not_go_to_and_fro(seed: int) -> None:
    """A member that stands in ZooKeeper and does nothing is passed over, once per stream."""
    world = World(seed)
    world.join("m0")
    world.join("m1")
    world.settle()
    world.join("m2")
    world.hung.add("m2")
    claimed = world.claimed

    for _ in range(60):
        world.now_ms += 500
        for name in ("m0", "m1"):
            world.step(name)

    assert sorted(world.claims) == list(range(world.count))
    assert world.claimed - claimed <= world.count // 3 + 1
