"""The secret: one for all, from the setting or created by the first process."""

from __future__ import annotations

import asyncio

import pytest

from shared.errors import InvalidInput, ZooKeeperUnavailable
from shared.model.names import Names
from shared.zookeeper.secret import MIN_BYTES, SECRET_BYTES, ensure_secret
from tests.fakes.coordinator import InMemoryZooKeeper, ZnodeStore

NAMES = Names("x")


async def test_concurrent_processes_get_the_same_secret() -> None:
    """It is as long as the hash, and each Baton has its own."""
    store = ZnodeStore()

    found = await asyncio.gather(*(ensure_secret(InMemoryZooKeeper(store), NAMES, "") for _ in range(5)))

    assert set(found) == {store.znodes["/baton-x/secret"].data}
    assert len(found[0]) == SECRET_BYTES
    assert await ensure_secret(InMemoryZooKeeper(store), Names(), "") != found[0]


async def test_a_configured_secret_is_not_written_to_zookeeper() -> None:
    """An operator who configures it may not want it there."""
    store = ZnodeStore()

    found = await ensure_secret(InMemoryZooKeeper(store), NAMES, "a secret of our own")

    assert found == b"a secret of our own"
    assert set(store.znodes) == {"/"}


async def test_a_short_secret_is_rejected() -> None:
    """With an empty secret anybody could sign."""
    client = InMemoryZooKeeper(ZnodeStore())
    await client.make_path(NAMES.root)
    await client.create(NAMES.secret, b"x" * (MIN_BYTES - 1))

    with pytest.raises(InvalidInput, match="/baton-x/secret holds less than 16 bytes"):
        await ensure_secret(client, NAMES, "")


async def test_without_zookeeper_there_is_no_secret_yet() -> None:
    """The caller retries; no process invents a secret of its own."""
    client = InMemoryZooKeeper(ZnodeStore())
    client.disconnect()

    with pytest.raises(ZooKeeperUnavailable):
        await ensure_secret(client, NAMES, "")
