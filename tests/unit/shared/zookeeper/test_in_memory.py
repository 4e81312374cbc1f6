"""The in-memory ZooKeeper meets the contract of the real one."""

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


async def test_watches_fire_after_a_reconnection(store: ZnodeStore, client: Znodes, root: str) -> None:
    """Like those of the real one, since the znodes may have changed meanwhile."""
    fired: list[str] = []
    watching = InMemoryZooKeeper(store)
    await watching.children(root, watch=fired.append)

    watching.disconnect()
    with pytest.raises(ZooKeeperUnavailable):
        await watching.children(root)
    watching.reconnect()

    assert fired == [root]


async def test_an_expired_session_loses_its_ephemerals_and_the_next_call_fails(
    store: ZnodeStore, client: Znodes, root: str
) -> None:
    """The call after that runs in a new ZooKeeper session."""
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
