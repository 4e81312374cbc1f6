"""The in-memory ZooKeeper keeps the contract of the real one."""

from __future__ import annotations

import pytest

from shared.errors import ZooKeeperUnavailable
from shared.zookeeper.znodes import Znodes
from tests.fakes.coordinator import InMemoryZooKeeper, ZnodeStore
from tests.znodes_contract import ZnodesContract


@pytest.fixture
def store() -> ZnodeStore:
    return ZnodeStore()


@pytest.fixture
def client(store: ZnodeStore) -> InMemoryZooKeeper:
    return InMemoryZooKeeper(store)


@pytest.fixture
async def root(client: InMemoryZooKeeper) -> str:
    await client.make_path("/root/a")
    return "/root"


class TestContract(ZnodesContract):
    """The contract of all clients of ZooKeeper."""


async def test_watches_are_told_after_a_reconnection(store: ZnodeStore, client: Znodes, root: str) -> None:
    """As with the real one: what was watched may have changed meanwhile."""
    told: list[str] = []
    watching = InMemoryZooKeeper(store)
    await watching.children(root, watch=told.append)

    watching.disconnect()
    with pytest.raises(ZooKeeperUnavailable):
        await watching.children(root)
    watching.reconnect()

    assert told == [root]


async def test_an_expired_session_takes_its_ephemerals_and_is_noticed_at_the_next_call(
    store: ZnodeStore, client: Znodes, root: str
) -> None:
    """The next call fails, the one after it runs in a new ZooKeeper session."""
    other = InMemoryZooKeeper(store)
    await other.create(f"{root}/ephemeral", ephemeral=True)
    assert other.session is not None
    before = other.session.id

    store.expire(before)
    gone = await client.get(f"{root}/ephemeral")
    with pytest.raises(ZooKeeperUnavailable):
        await other.get(root)

    assert gone is None
    assert await other.get(root) is not None
    assert other.session.id != before
