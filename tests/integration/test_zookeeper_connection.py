"""The connection to a real ZooKeeper: what survives pauses, restarts, mute servers and lost sessions."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator

import pytest

from shared.errors import ZooKeeperUnavailable
from shared.zookeeper.connection import ZooKeeper
from tests.servers import ZooKeeperServer, free_port
from tests.znodes_contract import ZnodesContract, session_id, until

TIMEOUT_S = 3.0


@pytest.fixture
async def client(zookeeper: str) -> AsyncIterator[ZooKeeper]:
    async with ZooKeeper(zookeeper, TIMEOUT_S) as client:
        yield client


@pytest.fixture
async def root(client: ZooKeeper, namespace: str) -> str:
    await client.make_path(f"/{namespace}/a")
    return f"/{namespace}"


class TestContract(ZnodesContract):
    """The contract of all clients of ZooKeeper."""


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
