"""What every `Znodes` guarantees, run against ZooKeeper (integration) and the in-memory store (unit).

A test module subclasses `ZnodesContract` and provides the fixtures `client` and `root`, the path of a
znode that has one child `a` without data.
"""

from __future__ import annotations

import pytest

from shared.errors import NotFound, ZooKeeperUnavailable
from shared.zookeeper.znodes import Check, Create, Delete, Set, Znodes
from tests.waiting import until


def session_id(client: Znodes) -> int:
    assert client.session is not None
    return client.session.id


class ZnodesContract:
    """The guarantees of a ZooKeeper client."""

    async def test_znodes_are_created_read_written_and_deleted_by_version(
        self, client: Znodes, root: str
    ) -> None:
        """A write with a wrong version returns False; reads return data and version."""
        assert await client.create(f"{root}/x", b"1")
        assert not await client.create(f"{root}/x", b"2")

        assert await client.set(f"{root}/x", b"3", 0)
        assert not await client.set(f"{root}/x", b"4", 0)
        assert not await client.set(f"{root}/none", b"4")
        znode = await client.get(f"{root}/x")

        assert znode is not None
        assert (znode.data, znode.version, znode.ephemeral_of) == (b"3", 1, 0)
        assert await client.children(root) == ["a", "x"]
        assert not await client.delete(f"{root}/x", 0)
        assert not await client.delete(root)
        assert await client.delete(f"{root}/x", 1)
        assert await client.get(f"{root}/x") is None
        assert await client.children(f"{root}/x") == []

    async def test_creating_a_znode_without_a_parent_raises(self, client: Znodes, root: str) -> None:
        """A missing parent is the caller's mistake, not a lost race."""
        with pytest.raises(NotFound):
            await client.create(f"{root}/none/x")

    async def test_a_transaction_is_all_or_nothing(self, client: Znodes, root: str) -> None:
        """If one operation fails, none takes effect, and `transact` returns False."""
        done = await client.transact([Create(f"{root}/x", b"1"), Set(f"{root}/a", b"2", 0)])
        refused = await client.transact([Set(f"{root}/x", b"3", 0), Check(f"{root}/a", 0)])
        replaced = await client.transact([Delete(f"{root}/x", 0), Create(f"{root}/x", b"4", ephemeral=True)])

        assert (done, refused, replaced) == (True, False, True)
        x = await client.get(f"{root}/x")
        assert x is not None
        assert (x.data, x.version, x.ephemeral_of) == (b"4", 0, session_id(client))

    async def test_a_watch_fires_once_for_each_kind_of_change(self, client: Znodes, root: str) -> None:
        """Watches report changed children, changed data and znodes that appear."""
        seen: list[str] = []
        await client.children(root, watch=seen.append)
        await client.get(f"{root}/a", watch=seen.append)
        assert await client.get(f"{root}/new", watch=seen.append) is None
        assert await client.children(f"{root}/later", watch=seen.append) == []

        await client.set(f"{root}/a", b"1")
        await client.set(f"{root}/a", b"2")
        await client.create(f"{root}/new")
        await client.create(f"{root}/later")

        await until(lambda: len(seen) == 4)
        assert sorted(seen) == [root, f"{root}/a", f"{root}/later", f"{root}/new"]

    async def test_a_watch_need_not_wait_for_a_missing_znode(self, client: Znodes, root: str) -> None:
        """With `awaits_creation=False` only an existing znode is watched, so nothing stays behind."""
        seen: list[str] = []
        missing, existing = f"{root}/new", f"{root}/a"
        assert await client.get(missing, watch=seen.append, awaits_creation=False) is None
        assert await client.get(existing, watch=seen.append, awaits_creation=False) is not None

        await client.create(missing)
        await client.delete(existing)

        await until(lambda: existing in seen)
        assert seen == [existing]

    async def test_make_path_creates_ancestors_and_keeps_what_exists(self, client: Znodes, root: str) -> None:
        """Creating a path twice changes nothing."""
        await client.make_path(f"{root}/x/y/z")
        await client.set(f"{root}/x", b"1")
        await client.make_path(f"{root}/x/y/z")

        x = await client.get(f"{root}/x")
        assert x is not None
        assert x.data == b"1"
        assert await client.children(f"{root}/x/y") == ["z"]

    async def test_a_request_for_another_zookeeper_session_is_refused(
        self, client: Znodes, root: str
    ) -> None:
        """A decision made in one ZooKeeper session must not take effect in the next."""
        with pytest.raises(ZooKeeperUnavailable):
            await client.create(f"{root}/x", within=session_id(client) + 1)

        assert await client.get(f"{root}/x", within=session_id(client)) is None
