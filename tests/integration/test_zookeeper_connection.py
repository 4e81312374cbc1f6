"""The connection to a real ZooKeeper: what survives pauses, restarts, mute servers and lost sessions."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable

import pytest

from shared.errors import NotFound, ZooKeeperUnavailable
from shared.znodes import Check, Create, Delete, Set
from shared.zookeeper import ZooKeeper
from tests.servers import ZooKeeperServer, free_port

TIMEOUT_S = 3.0


async def until(condition: Callable[[], bool], timeout_s: float = 20.0) -> None:
    """Returns when the condition holds; fails the test after the time-out."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110  what is polled has no event
            await asyncio.sleep(0.01)


@pytest.fixture
async def client(zookeeper: str) -> AsyncIterator[ZooKeeper]:
    async with ZooKeeper(zookeeper, TIMEOUT_S) as client:
        yield client


@pytest.fixture
async def root(client: ZooKeeper, namespace: str) -> str:
    await client.make_path(f"/{namespace}/a")
    return f"/{namespace}"


def session_id(client: ZooKeeper) -> int:
    assert client.session is not None
    return client.session.id


async def test_a_znode_is_made_read_written_and_deleted_by_version(client: ZooKeeper, root: str) -> None:
    """Writes are refused with False unless the version fits; reads tell data and version."""
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


async def test_a_znode_without_a_parent_is_not_made(client: ZooKeeper, root: str) -> None:
    """A missing parent is a fault of the caller, told apart from losing a race."""
    with pytest.raises(NotFound):
        await client.create(f"{root}/none/x")


async def test_a_transaction_does_all_or_nothing(client: ZooKeeper, root: str) -> None:
    """One refused operation refuses all of them, and that is a False."""
    done = await client.transact([Create(f"{root}/x", b"1"), Set(f"{root}/a", b"2", 0)])
    refused = await client.transact([Set(f"{root}/x", b"3", 0), Check(f"{root}/a", 0)])
    replaced = await client.transact([Delete(f"{root}/x", 0), Create(f"{root}/x", b"4", ephemeral=True)])

    assert (done, refused, replaced) == (True, False, True)
    x = await client.get(f"{root}/x")
    assert x is not None
    assert (x.data, x.version, x.ephemeral_of) == (b"4", 0, session_id(client))


async def test_a_watch_is_told_once_of_each_kind_of_change(client: ZooKeeper, root: str) -> None:
    """Children, data, the appearing and the going of a znode are told to who read them with a watch."""
    told: list[str] = []
    await client.children(root, watch=told.append)
    await client.get(f"{root}/a", watch=told.append)
    assert await client.get(f"{root}/new", watch=told.append) is None
    assert await client.children(f"{root}/later", watch=told.append) == []

    await client.set(f"{root}/a", b"1")
    await client.set(f"{root}/a", b"2")
    await client.create(f"{root}/new")
    await client.create(f"{root}/later")

    await until(lambda: len(told) == 4)
    assert sorted(told) == [root, f"{root}/a", f"{root}/later", f"{root}/new"]


async def test_ephemerals_go_at_once_when_the_client_is_closed(
    client: ZooKeeper, zookeeper: str, root: str
) -> None:
    """An orderly close ends the ZooKeeper session; nobody waits for its time-out."""
    other = ZooKeeper(zookeeper, 20.0)
    await other.connect(10)
    await other.create(f"{root}/ephemeral", ephemeral=True)

    await other.close()

    assert await client.get(f"{root}/ephemeral") is None


async def test_a_lost_connection_is_made_again_in_the_same_zookeeper_session(
    client: ZooKeeper, root: str
) -> None:
    """A new client re-attaches to the old ZooKeeper session: ephemerals stay, watches are told."""
    told: list[str] = []
    before = client.session
    await client.create(f"{root}/ephemeral", ephemeral=True)
    await client.children(root, watch=told.append)
    link = client._link
    assert link is not None

    link.session.conn.writer.transport.abort()
    await until(lambda: link.lost.is_set())
    await client.connect(10)

    assert client._link is not link
    assert client.session == before
    znode = await client.get(f"{root}/ephemeral")
    assert znode is not None
    assert znode.ephemeral_of == session_id(client)
    assert told == [root]


async def test_a_restarted_server_is_found_again_in_the_same_zookeeper_session(
    client: ZooKeeper, root: str, zookeeper_server: ZooKeeperServer
) -> None:
    """Servers keep sessions over a restart, and so does the client."""
    before = session_id(client)
    await client.create(f"{root}/ephemeral", ephemeral=True)

    await asyncio.to_thread(zookeeper_server.kill)
    await until(lambda: not client.is_connected)
    with pytest.raises(ZooKeeperUnavailable):
        await client.get(root)
    await asyncio.to_thread(zookeeper_server.start)
    await client.connect(20)

    assert session_id(client) == before
    assert await client.get(f"{root}/ephemeral") is not None


async def test_a_frozen_client_finds_itself_in_a_new_zookeeper_session(
    client: ZooKeeper, zookeeper: str, root: str
) -> None:
    """After an expiry the new session's id is visible, and no call decided in the old one is sent."""
    async with ZooKeeper(zookeeper, 1.0) as frozen:
        before = session_id(frozen)
        await frozen.create(f"{root}/ephemeral", ephemeral=True)
        answered_s = frozen.answered_s

        time.sleep(2.5)  # noqa: ASYNC251  the freeze itself: nothing in this process runs, nor pings
        await until(lambda: session_id(frozen) != before)

        await frozen.connect(10)
        assert await frozen.get(f"{root}/ephemeral") is None
        assert frozen.answered_s > answered_s
        with pytest.raises(ZooKeeperUnavailable):
            await frozen.create(f"{root}/late", within=before)
        assert await frozen.get(f"{root}/late") is None


async def test_a_mute_server_ends_calls_in_bounded_time_and_the_outcome_can_be_read_back(
    client: ZooKeeper, root: str, zookeeper_server: ZooKeeperServer
) -> None:
    """A write into silence is unknown; read back after the pause, it was done once or not at all."""
    before = session_id(client)
    answered_s = client.answered_s

    zookeeper_server.pause()
    async with asyncio.timeout(TIMEOUT_S):
        with pytest.raises(ZooKeeperUnavailable):
            await client.set(f"{root}/a", b"unknown", 0)
    await until(lambda: not client.is_connected)
    assert client.answered_s <= answered_s + TIMEOUT_S / 6 + 0.5
    zookeeper_server.resume()
    await client.connect(20)
    znode = await client.get(f"{root}/a")

    assert znode is not None
    assert (znode.data, znode.version) in ((b"unknown", 1), (b"", 0))
    assert session_id(client) == before


async def test_a_mute_server_among_the_servers_only_costs_time(zookeeper: str) -> None:
    """A server that takes connections and says nothing is passed over."""
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        servers = f"127.0.0.1:{mute.getsockname()[1]},{zookeeper}"

        async with ZooKeeper(servers, TIMEOUT_S) as client:
            assert await client.children("/")


async def test_no_server_at_all_is_told_and_tried_again(zookeeper: str) -> None:
    """`connect` ends in a ZooKeeperUnavailable after its time-out, `close` in bounded time."""
    client = ZooKeeper(f"127.0.0.1:{free_port()}", TIMEOUT_S)

    with pytest.raises(ZooKeeperUnavailable):
        await client.connect(1.5)

    async with asyncio.timeout(2):
        await client.close()


async def test_nothing_is_left_running_after_a_close(zookeeper: str) -> None:
    """No task of aiozk or ours outlives the client, even when its connection was lost in between."""
    tasks = asyncio.all_tasks()
    client = ZooKeeper(zookeeper, TIMEOUT_S)
    await client.connect(10)
    for _ in range(3):
        link = client._link
        assert link is not None
        link.session.conn.writer.transport.abort()
        await until(lambda link=link: link.lost.is_set())  # type: ignore[misc]
        await client.connect(10)
    await client.children("/", watch=lambda _: None)

    await client.close()

    await until(lambda: asyncio.all_tasks() <= tasks, 2)
