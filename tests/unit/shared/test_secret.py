"""The secret: one for all, from the setting or made by whoever comes first."""

from __future__ import annotations

import asyncio

import pytest

from shared.errors import InvalidInput, ZooKeeperUnavailable
from shared.model.names import Names
from shared.zookeeper.secret import LEAST_BYTES, SECRET_BYTES, ensure_secret
from tests.fakes.coordinator import InMemoryZooKeeper, ZnodeStore

NAMES = Names("x")


async def test_all_who_come_at_once_get_one_secret() -> None:
    """The first one's; it is as long as the hash, and stands at the znode of its own Baton."""
    store = ZnodeStore()

    found = await asyncio.gather(*(ensure_secret(InMemoryZooKeeper(store), NAMES, "") for _ in range(5)))

    assert set(found) == {store.znodes["/baton-x/secret"].data}
    assert len(found[0]) == SECRET_BYTES
    assert await ensure_secret(InMemoryZooKeeper(store), Names(), "") != found[0]


async def test_the_setting_goes_before_and_leaves_nothing_in_zookeeper() -> None:
    """Who configures a secret may not want it there."""
    store = ZnodeStore()

    found = await ensure_secret(InMemoryZooKeeper(store), NAMES, "a secret of our own")

    assert found == b"a secret of our own"
    assert set(store.znodes) == {"/"}


async def test_a_znode_with_too_little_in_it_is_refused() -> None:
    """An empty secret would let anybody sign."""
    client = InMemoryZooKeeper(ZnodeStore())
    await client.make_path(NAMES.root)
    await client.create(NAMES.secret, b"x" * (LEAST_BYTES - 1))

    with pytest.raises(InvalidInput, match="/baton-x/secret holds less than 16 bytes"):
        await ensure_secret(client, NAMES, "")


async def test_without_zookeeper_there_is_no_secret_yet() -> None:
    """The caller tries again; nobody makes up one of his own."""
    client = InMemoryZooKeeper(ZnodeStore())
    client.disconnect()

    with pytest.raises(ZooKeeperUnavailable):
        await ensure_secret(client, NAMES, "")
