"""Coordinators over one in-memory ZooKeeper while requests, answers, connections and sessions get lost."""

from __future__ import annotations

import asyncio
import random

import msgspec
import pytest

from shared.errors import ZooKeeperUnavailable
from shared.model.cluster import ClaimNode, StreamNode
from shared.model.group import GroupSettings
from shared.model.names import Names
from tests.coordinator_contract import COUNT, node
from tests.fakes.coordinator import InMemoryCoordinator, ZnodeStore


async def joined(store: ZnodeStore, member: str) -> InMemoryCoordinator:
    coordinator = InMemoryCoordinator(store, member, count=COUNT)
    await coordinator.ensure_group(GroupSettings())
    await coordinator.join(node(coordinator))
    return coordinator


class Chaos:
    """Three members over one store claim and release at random while everything goes wrong."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.store = ZnodeStore()
        self.members: list[InMemoryCoordinator] = []
        self.won: dict[tuple[int, int], tuple[str, int | None]] = {}

    async def run(self) -> None:
        self.members = [await joined(self.store, name) for name in "abc"]
        async with asyncio.TaskGroup() as tasks:
            for member in self.members:
                tasks.create_task(self._act(member))

    async def _act(self, member: InMemoryCoordinator) -> None:
        for _ in range(25):
            self._disturb(member)
            stream, session = self.rng.randrange(3), member.session_id
            try:
                match self.rng.choice(["claim", "claim", "release", "view"]):
                    case "claim":
                        epoch = await member.claim(stream)
                        if epoch is not None:
                            won = self.won.setdefault((stream, epoch), (member.member, session))
                            assert won == (member.member, session)
                    case "release":
                        claim = await member.read_claim(stream)
                        if claim is not None and claim.member == member.member:
                            target = self.rng.choice(["a", "b", None])
                            await member.release(stream, claim.epoch, 1, target)
                    case "view":
                        await member.join(node(member))
                        await member.view()
            except ZooKeeperUnavailable:
                continue

    def _disturb(self, member: InMemoryCoordinator) -> None:
        zookeeper = member.zookeeper
        match self.rng.randrange(14):
            case 0:
                zookeeper.lose_answers = 1
            case 1:
                zookeeper.lose_requests = 1
            case 2:
                zookeeper.delay_requests = 1
            case 3 | 4:
                zookeeper.deliver_delayed()
            case 5:
                zookeeper.disconnect()
            case 6 | 7 | 8:
                zookeeper.reconnect()
            case 9 if member.session_id is not None:
                self.store.expire(member.session_id)


@pytest.mark.parametrize("seed", range(150))
async def test_no_fault_makes_an_epoch_be_won_twice(seed: int) -> None:
    """Lost, late or unanswered writes, expiries, disconnections: one epoch belongs to one ZooKeeper session.

    Once the faults end, every view shows the truth.
    """
    chaos = Chaos(seed)

    await chaos.run()

    assert chaos.won
    for member in chaos.members:
        member.zookeeper.deliver_delayed()
    for member in chaos.members:
        member.zookeeper.lose_answers = member.zookeeper.lose_requests = member.zookeeper.delay_requests = 0
        member.zookeeper.reconnect()
        await member.join(node(member))
    views = [await member.view() for member in chaos.members]

    names = Names()
    for stream in range(3):
        claim = chaos.store.znodes.get(names.claim("default", stream))
        expected = msgspec.json.decode(claim.data, type=ClaimNode) if claim is not None else None
        assert [view.claims.get(stream) for view in views] == [expected] * 3
        if claim is None and (znode := chaos.store.znodes.get(names.stream("default", stream))) is not None:
            last = msgspec.json.decode(znode.data, type=StreamNode)
            assert [view.node(stream) for view in views] == [last] * 3
