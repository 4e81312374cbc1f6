"""The secret: one for all, from the setting or created by the first process."""

from __future__ import annotations

import asyncio

import pytest

from shared.errors import InvalidInput, ZooKeeperUnavailable
from shared.model.names import Names
from shared.model.secrets import Secrets
from shared.zookeeper.secret import IN_ZOOKEEPER, MIN_BYTES, SECRET_BYTES, ensure_secrets
from tests.fakes.coordinator import InMemoryZooKeeper, ZnodeStore

NAMES = Names("x")


async def test_concurrent_processes_get_the_same_secret() -> None:
    """It is as long as the hash, and each Baton has its own."""
    store = ZnodeStore()

    found = await asyncio.gather(*(ensure_secrets(InMemoryZooKeeper(store), NAMES, "") for _ in range(5)))

    assert {one.signing for one in found} == {store.znodes["/baton-x/secret"].data}
    assert (len(found[0].signing), found[0].accepted) == (SECRET_BYTES, None)
    assert await ensure_secrets(InMemoryZooKeeper(store), Names(), "") != found[0]


async def test_a_configured_secret_is_not_written_to_zookeeper() -> None:
    """An operator who configures it may not want it there."""
    store = ZnodeStore()

    found = await ensure_secrets(InMemoryZooKeeper(store), NAMES, "a secret of our own")

    assert found == Secrets(signing=b"a secret of our own")
    assert set(store.znodes) == {"/"}


async def test_a_rotation_can_begin_and_end_with_the_secret_in_zookeeper() -> None:
    """Its random bytes do not fit into a variable, so the setting names the znode."""
    client = InMemoryZooKeeper(ZnodeStore())

    before = await ensure_secrets(client, NAMES, "", "a secret of our own")
    after = await ensure_secrets(client, NAMES, "a secret of our own", IN_ZOOKEEPER)

    assert (before.signing, before.accepted) == (after.accepted, after.signing)


async def test_a_short_secret_is_rejected() -> None:
    """With an empty secret anybody could sign."""
    client = InMemoryZooKeeper(ZnodeStore())
    await client.make_path(NAMES.root)
    await client.create(NAMES.secret, b"x" * (MIN_BYTES - 1))

    with pytest.raises(InvalidInput, match="/baton-x/secret holds less than 16 bytes"):
        await ensure_secrets(client, NAMES, "")


async def test_without_zookeeper_there_is_no_secret_yet() -> None:
    """The caller retries; no process invents a secret of its own."""
    client = InMemoryZooKeeper(ZnodeStore())
    client.disconnect()

    with pytest.raises(ZooKeeperUnavailable):
        await ensure_secrets(client, NAMES, "")
