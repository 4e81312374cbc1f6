"""All members of a small group together: whatever happens, they come to rest in the plan."""

from __future__ import annotations

import random

import pytest

from services.consumer.core.ownership.dampers import Dampers, OwnershipSettings
from services.consumer.core.ownership.decide import Claim, Effect, HandOver, Release, Running, decide
from shared.model.balance import plan
from shared.model.cluster import ClaimNode, MemberNode, StreamNode, View

SETTINGS = OwnershipSettings()


class World:
    """Members that carry out their effects one by one in random order, on the true state of that moment."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.count = self.rng.randint(1, 30)
        self.now_ms = 0
        self.members: dict[str, MemberNode] = {}
        self.claims: dict[int, ClaimNode] = {}
        self.nodes: dict[int, StreamNode] = {}
        self.pins: dict[int, str] = {}
        self.since_ms: dict[str, int] = {}
        self.dampers: dict[str, Dampers] = {}
        self.hung: set[str] = set()
        self.claimed = 0

    def view(self) -> View:
        return View(
            count=self.count,
            members=dict(self.members),
            claims=dict(self.claims),
            nodes={n: node for n, node in self.nodes.items() if n not in self.claims},
            pins=dict(self.pins),
        )

    def join(self, name: str) -> None:
        self.members[name] = MemberNode(address=f"http://{name}")
        self.since_ms[name] = self.now_ms
        self.dampers[name] = Dampers(name, SETTINGS)

    def die(self, name: str) -> None:
        del self.members[name]
        self.hung.discard(name)
        self.claims = {n: claim for n, claim in self.claims.items() if claim.member != name}

    def step(self, name: str) -> list[Effect]:
        """One member looks at the group and carries out what it decides."""
        view = self.view()
        dampers = self.dampers[name]
        dampers.observe(view, self.now_ms, self.now_ms - self.since_ms[name])
        running = {n: Running(epoch=view.claims[n].epoch) for n in view.streams_of(name)}
        effects = decide(view, running, dampers)
        for effect in effects:
            epoch = self.nodes.get(effect.stream, StreamNode()).epoch
            match effect:
                case Claim(stream=stream):
                    assert stream not in self.claims
                    self.claimed += 1
                    self.claims[stream] = ClaimNode(member=name, epoch=epoch + 1)
                    self.nodes[stream] = StreamNode(epoch=epoch + 1, owner=name)
                case Release(stream=stream, target=target) | HandOver(stream=stream, target=target):
                    del self.claims[stream]
                    self.nodes[stream] = StreamNode(epoch=epoch, owner=name, seq=1, target=target)
                case _:
                    raise AssertionError(effect)
        return effects

    def settle(self) -> None:
        """Runs the members until they have been still for 12 s; fails if that takes minutes."""
        still_since_ms, end_ms = self.now_ms, self.now_ms + 300_000
        while self.now_ms - still_since_ms < 12_000:
            assert self.now_ms < end_ms, "the members do not come to rest"
            self.now_ms += self.rng.randint(1, 1500)
            for name in self.rng.sample(sorted(self.members), len(self.members)):
                if name not in self.hung and self.step(name):
                    still_since_ms = self.now_ms


@pytest.mark.parametrize("seed", range(80))
def test_members_that_come_go_and_drain_always_come_to_rest_in_the_plan(seed: int) -> None:
    """Whatever happens, in the end every stream has the owner that the plan names, and nothing moves."""
    world = World(seed)
    world.join("m0")
    for number in range(1, 8):
        incident = world.rng.choice(["join", "join", "die", "drain", "pin", "pin", "rebalance", "all die"])
        name = world.rng.choice(sorted(world.members))
        if incident == "join":
            world.join(f"m{number}")
        elif incident == "die" and len(world.members) > 1:
            world.die(name)
        elif incident == "drain" and len(world.members) > 1:
            world.members[name] = MemberNode(address="", state="draining")
            while world.step(name):
                pass
            world.die(name)
        elif incident == "pin":
            world.pins[world.rng.randrange(world.count)] = name
        elif incident == "rebalance":
            world.pins.clear()
        elif incident == "all die":
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
def test_after_an_outage_of_zookeeper_no_stream_moves(seed: int) -> None:
    """All come back within the settle time: each claims what it had, and every stream keeps its owner."""
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
def test_a_hung_member_costs_a_grace_and_each_stream_moves_once(seed: int) -> None:
    """A member that is registered and does nothing is left out, once per stream."""
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
