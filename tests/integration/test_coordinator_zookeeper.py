"""The coordinator on a real ZooKeeper: the same contract as in memory, a restart, many streams at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from services.consumer.adapters.zookeeper.coordinator import ZooKeeperCoordinator
from shared.errors import ZooKeeperUnavailable
from shared.model.balance import plan
from shared.model.cluster import ClaimNode
from shared.model.group import GroupSettings
from shared.model.names import Names
from shared.zookeeper.connection import ZooKeeper
from tests.coordinator_contract import COUNT, CoordinatorContract, OpenCoordinator, node, viewed
from tests.servers import ZooKeeperServer
from tests.waiting import DEADLINE_S, until


class Members:
    """Coordinators of one group, each with a client of its own, as processes have."""

    def __init__(self, servers: str, namespace: str) -> None:
        self._servers, self._names = servers, Names(namespace)
        self._clients: list[ZooKeeper] = []

    async def open(
        self, member: str, count: int = COUNT, timeout_s: float = 6.0
    ) -> tuple[ZooKeeperCoordinator, ZooKeeper]:
        client = ZooKeeper(self._servers, timeout_s)
        self._clients.append(client)
        await client.connect(DEADLINE_S)
        coordinator = ZooKeeperCoordinator(
            client, self._names, "default", member, count=count, address=f"http://{member}"
        )
        await coordinator.ensure_group(GroupSettings())
        await coordinator.join(node(coordinator))
        return coordinator, client

    async def close(self) -> None:
        for client in self._clients:
            await client.close()


@pytest.fixture
def zookeeper(zookeeper_server: ZooKeeperServer) -> str:
    """A server that no other worker uses, because a test stops it."""
    return zookeeper_server.address


@pytest.fixture
async def members(zookeeper: str, namespace: str) -> AsyncIterator[Members]:
    members = Members(zookeeper, namespace)
    yield members
    await members.close()


class TestContract(CoordinatorContract):
    """The contract of all coordinators."""

    @pytest.fixture
    def open_coordinator(self, members: Members) -> OpenCoordinator:
        async def open_one(member: str) -> ZooKeeperCoordinator:
            return (await members.open(member))[0]

        return open_one


async def test_claims_outlive_a_restart_of_zookeeper(
    members: Members, zookeeper_server: ZooKeeperServer
) -> None:
    """The same ZooKeeper session keeps its claims; the lease runs on meanwhile, and starts anew."""
    a, client = await members.open("a", timeout_s=10.0)
    await a.claim(3)
    await a.view()
    old, lease = a.session_id, a.lease
    assert lease is not None

    await asyncio.to_thread(zookeeper_server.kill)
    await until(lambda: not client.is_connected)
    with pytest.raises(ZooKeeperUnavailable):
        await a.read_claim(3)
    await asyncio.to_thread(zookeeper_server.start)
    await client.connect(DEADLINE_S)
    view = await a.view()

    assert a.session_id == old
    assert view.claims == {3: ClaimNode(member="a", epoch=1)}
    assert a.lease is not None
    assert a.lease.end_s > lease.end_s
    assert await a.release(3, 1, 0, None)


async def test_288_streams_are_claimed_by_four_members_as_planned(members: Members) -> None:
    """Each member claims its planned streams, many at once, and in the end all see the same."""
    count = 288
    coordinators = [(await members.open(name, count))[0] for name in "abcd"]

    async def settle(coordinator: ZooKeeperCoordinator) -> None:
        view = await viewed(coordinator, lambda view: len(view.members) == 4)
        in_flight = asyncio.Semaphore(16)

        async def claim(stream: int) -> None:
            async with in_flight:
                await coordinator.claim(stream)

        await asyncio.gather(*(claim(n) for n in plan(view).streams_of(coordinator.member)))
        await viewed(coordinator, lambda view: len(view.claims) == count)

    started_s = time.monotonic()
    async with asyncio.timeout(DEADLINE_S):
        await asyncio.gather(*(settle(c) for c in coordinators))
    print(f"settled in {time.monotonic() - started_s:.2f} s")

    views = [await c.view() for c in coordinators]
    assert all(view == views[0] for view in views)
    assert [len(views[0].streams_of(name)) for name in "abcd"] == [72] * 4
    assert plan(views[0]).moves == ()
