"""The client of a real ZooKeeper survives pauses, restarts, unresponsive servers and lost sessions."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator

import pytest

from shared.errors import ZooKeeperUnavailable
from shared.zookeeper.connection import ZooKeeper
from tests.servers import ZooKeeperServer, free_port
from tests.waiting import DEADLINE_S, until
from tests.znodes_contract import ZnodesContract, session_id

TIMEOUT_S = 6.0


@pytest.fixture
def zookeeper(zookeeper_server: ZooKeeperServer) -> str:
    """A server that no other worker uses, because tests stop it."""
    return zookeeper_server.address


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


async def test_closing_the_client_deletes_its_ephemerals_at_once(
    client: ZooKeeper, zookeeper: str, root: str
) -> None:
    """`close` ends the ZooKeeper session instead of letting it time out."""
    other = ZooKeeper(zookeeper, 20.0)
    await other.connect(DEADLINE_S)
    await other.create(f"{root}/ephemeral", ephemeral=True)

    await other.close()

    assert await client.get(f"{root}/ephemeral") is None


async def test_a_lost_connection_is_replaced_in_the_same_zookeeper_session(
    client: ZooKeeper, root: str
) -> None:
    """A new link re-attaches to the ZooKeeper session: ephemerals stay, and watches fire."""
    fired: list[str] = []
    before = client.session
    await client.create(f"{root}/ephemeral", ephemeral=True)
    await client.children(root, watch=fired.append)
    link = client._link
    assert link is not None

    link.session.conn.writer.transport.abort()
    await until(lambda: link.lost.is_set())
    await client.connect(DEADLINE_S)

    assert client._link is not link
    assert client.session == before
    znode = await client.get(f"{root}/ephemeral")
    assert znode is not None
    assert znode.ephemeral_of == session_id(client)
    assert fired == [root]


async def test_the_client_reconnects_to_a_restarted_server_in_the_same_zookeeper_session(
    client: ZooKeeper, root: str, zookeeper_server: ZooKeeperServer
) -> None:
    """The server keeps sessions across a restart, and so does the client."""
    before = session_id(client)
    await client.create(f"{root}/ephemeral", ephemeral=True)

    await asyncio.to_thread(zookeeper_server.kill)
    await until(lambda: not client.is_connected)
    with pytest.raises(ZooKeeperUnavailable):
        await client.get(root)
    await asyncio.to_thread(zookeeper_server.start)
    await client.connect(DEADLINE_S)

    assert session_id(client) == before
    assert await client.get(f"{root}/ephemeral") is not None


async def test_a_frozen_client_gets_a_new_zookeeper_session(
    client: ZooKeeper, zookeeper: str, root: str
) -> None:
    """After the expiry the new session's id is visible, and calls for the old session are not sent."""
    async with ZooKeeper(zookeeper, 1.0) as frozen:
        before = session_id(frozen)
        await frozen.create(f"{root}/ephemeral", ephemeral=True)
        answered_s = frozen.answered_s

        time.sleep(2.5)  # noqa: ASYNC251  the freeze: the whole process stands still and sends no pings
        await until(lambda: session_id(frozen) != before)

        await frozen.connect(DEADLINE_S)
        assert await frozen.get(f"{root}/ephemeral") is None
        assert frozen.answered_s > answered_s
        with pytest.raises(ZooKeeperUnavailable):
            await frozen.create(f"{root}/late", within=before)
        assert await frozen.get(f"{root}/late") is None


async def test_calls_to_an_unresponsive_server_end_in_bounded_time(
    client: ZooKeeper, root: str, zookeeper_server: ZooKeeperServer
) -> None:
    """The outcome of a write is unknown then; a later read shows that it happened once or not at all."""
    before = session_id(client)
    answered_s = client.answered_s

    zookeeper_server.pause()
    async with asyncio.timeout(TIMEOUT_S):
        with pytest.raises(ZooKeeperUnavailable):
            await client.set(f"{root}/a", b"unknown", 0)
    await until(lambda: not client.is_connected)
    assert client.answered_s <= answered_s + TIMEOUT_S / 6 + 0.5
    zookeeper_server.resume()
    await client.connect(DEADLINE_S)
    znode = await client.get(f"{root}/a")

    assert znode is not None
    assert (znode.data, znode.version) in ((b"unknown", 1), (b"", 0))
    assert session_id(client) == before


async def test_an_unresponsive_server_of_several_is_skipped(zookeeper: str) -> None:
    """A server that accepts connections without answering only costs time."""
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        servers = f"127.0.0.1:{mute.getsockname()[1]},{zookeeper}"

        async with ZooKeeper(servers, TIMEOUT_S) as client:
            assert await client.children("/")


async def test_connecting_without_a_server_fails_after_the_time_out(zookeeper: str) -> None:
    """With ZooKeeperUnavailable; `close` still ends in bounded time."""
    client = ZooKeeper(f"127.0.0.1:{free_port()}", TIMEOUT_S)

    with pytest.raises(ZooKeeperUnavailable):
        await client.connect(1.5)

    async with asyncio.timeout(DEADLINE_S):
        await client.close()


async def test_closing_the_client_ends_all_tasks(zookeeper: str) -> None:
    """No task of aiozk or ours outlives the client, even after lost connections."""
    tasks = asyncio.all_tasks()
    client = ZooKeeper(zookeeper, TIMEOUT_S)
    await client.connect(DEADLINE_S)
    for _ in range(3):
        link = client._link
        assert link is not None
        link.session.conn.writer.transport.abort()
        await until(lambda link=link: link.lost.is_set())  # type: ignore[misc]
        await client.connect(DEADLINE_S)
    await client.children("/", watch=lambda _: None)

    await client.close()

    await until(lambda: asyncio.all_tasks() <= tasks)
