"""Digest authentication and ACLs on a real ZooKeeper: strangers get nothing, and passwords can be rotated."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import httpx
import pytest

from services.consumer.__main__ import serve
from services.consumer.settings import ConsumerSettings
from shared.errors import ZooKeeperRefused, ZooKeeperUnavailable
from shared.model.names import Names
from shared.secret_file import SecretFile
from shared.service.settings import load
from shared.zookeeper.access import OPEN, access_source
from shared.zookeeper.connection import ZooKeeper
from shared.zookeeper.stream_table import ensure_table
from shared.zookeeper.znodes import Check, Create, Delete, Set
from tests.servers import ZooKeeperServer, free_port
from tests.waiting import DEADLINE_S, running, until
from tests.znodes_contract import ZnodesContract, session_id

TIMEOUT_S = 3.0
Client = Callable[..., Awaitable[ZooKeeper]]


@pytest.fixture
async def client_of(zookeeper: str, tmp_path: Path) -> AsyncIterator[Client]:
    """Opens clients of the user `baton` whose password files have the given lines."""
    async with contextlib.AsyncExitStack() as stack:

        async def open_client(name: str, *passwords: str, acl: str = "locked") -> ZooKeeper:
            file = tmp_path / name
            file.write_text("\n".join(passwords))
            access = access_source("baton" if passwords else "", str(file), acl)
            return await stack.enter_async_context(ZooKeeper(zookeeper, TIMEOUT_S, access))

        yield open_client


@pytest.fixture
async def client(client_of: Client) -> ZooKeeper:
    """A client that locks what it creates."""
    return await client_of("own", "secret")


@pytest.fixture
async def root(client: ZooKeeper, namespace: str) -> str:
    """A locked znode."""
    await client.make_path(f"/{namespace}/a")
    return f"/{namespace}"


class TestContract(ZnodesContract):
    """The contract of all clients of ZooKeeper, on locked znodes."""


@pytest.mark.parametrize("passwords", [(), ("wrong",), ("wrong", "worse")], ids=str)
async def test_a_stranger_can_neither_read_nor_change_anything(
    client: ZooKeeper, client_of: Client, root: str, passwords: tuple[str, ...]
) -> None:
    """Every kind of znode refuses a client without the password, by every call; nothing counts as lost."""
    stranger = await client_of("other", *passwords)
    made = [f"{root}/created", f"{root}/ephemeral", f"{root}/in-transaction"]
    await client.create(made[0], b"1")
    await client.create(made[1], b"1", ephemeral=True)
    await client.transact([Create(made[2], b"1")])

    calls = [
        *(stranger.get(path) for path in made),
        *(stranger.set(path, b"2") for path in made),
        *(stranger.transact([Set(path, b"2")]) for path in made),
        *(stranger.transact([Check(path, 0)]) for path in made),
        *(stranger.set_acl(path, is_locked=False) for path in made),
        *(stranger.delete(path) for path in made),
        stranger.children(root),
        stranger.create(f"{root}/x"),
        stranger.transact([Create(f"{root}/x", b"")]),
        stranger.transact([Delete(f"{root}/a")]),
    ]
    answers = await asyncio.gather(*calls, return_exceptions=True)

    assert [answer for answer in answers if not isinstance(answer, ZooKeeperRefused)] == []
    user = "the user 'baton'" if passwords else "a client without a user"
    assert str(answers[0]) == f"ZooKeeper refuses {user}: no right to {made[0]}"
    assert stranger.complaint.startswith(f"ZooKeeper refuses {user}: no right to {root}")
    assert stranger.is_connected
    assert (await client.children(root), client.complaint) == (
        ["a", "created", "ephemeral", "in-transaction"],
        "",
    )


async def test_a_new_connection_authenticates_before_anything_else(
    client: ZooKeeper, client_of: Client, root: str
) -> None:
    """ZooKeeper forgets users with connections: also after a lost one, and after an expired session."""
    await client.create(f"{root}/locked")
    before = session_id(client)
    for is_expired in (False, True):
        link = client._link
        assert link is not None
        if is_expired:
            await link.end_session()
        else:
            link.session.conn.writer.transport.abort()
        await until(lambda link=link: link.lost.is_set())  # type: ignore[misc]
        await client.connect(DEADLINE_S)

        assert (session_id(client) == before) is not is_expired
        assert await client.set(f"{root}/locked", b"")
        assert await client.create(f"{root}/again-{is_expired}")


async def test_passwords_are_rotated_one_process_after_the_other(
    client_of: Client, tmp_path: Path, namespace: str
) -> None:
    """In each step both clients use what the other has created; at the end the old password opens nothing."""
    first, second = await client_of("first", "old"), await client_of("second", "old")
    root = f"/{namespace}"
    await first.make_path(root)

    async def put(name: str, *passwords: str) -> None:
        client = {"first": first, "second": second}[name]
        (tmp_path / name).write_text("\n".join(passwords))
        link = client._link
        assert link is not None
        await until(lambda: link.access is not None and link.access.passwords == passwords)

    async def lock() -> None:
        for path in [root, *(f"{root}/{name}" for name in await first.children(root))]:
            await first.set_acl(path, is_locked=True)

    for step, (name, passwords) in enumerate(
        [("first", ("new", "old")), ("second", ("new", "old")), ("first", ("new",)), ("second", ("new",))]
    ):
        if step == 2:
            await lock()
        await put(name, *passwords)
        for author, reader in ((first, second), (second, first)):
            path = f"{root}/{step}-{author is first}"
            assert await author.create(path, b"", ephemeral=True)
            assert await reader.set(path, b"1")
    await lock()

    late = await client_of("late", "old")
    answers = await asyncio.gather(
        late.children(root),
        *(late.get(f"{root}/{name}") for name in await first.children(root)),
        return_exceptions=True,
    )
    assert {type(answer) for answer in answers} == {ZooKeeperRefused}


async def test_an_open_cluster_is_locked_without_a_standstill(client_of: Client, namespace: str) -> None:
    """Processes with a user and open ACLs work with those that have none, and with those that lock."""
    without, opening = await client_of("a"), await client_of("b", "secret", acl=OPEN)
    root = f"/{namespace}"
    await without.make_path(root)
    assert await opening.create(f"{root}/open")
    assert await without.set(f"{root}/open", b"1")

    locking = await client_of("c", "secret")
    assert await locking.create(f"{root}/locked")
    assert await opening.set(f"{root}/locked", b"1")

    changed = [await locking.set_acl(f"{root}/{name}", is_locked=True) for name in ("open", "locked", "none")]
    assert changed == [True, False, False]
    assert await opening.set(f"{root}/open", b"2")
    with pytest.raises(ZooKeeperRefused):
        await without.get(f"{root}/open")
    assert await opening.set_acl(f"{root}/open", is_locked=False)
    assert await without.set(f"{root}/open", b"3")


async def test_a_process_with_a_wrong_password_says_so_and_joins_once_it_is_right(
    client: ZooKeeper, kafka: str, zookeeper: str, namespace: str, tmp_path: Path
) -> None:
    """`/readyz` names the user and the znode; a restart is not needed."""
    names = Names(namespace)
    await ensure_table(
        client, names, kafka=kafka, streams=1, default_streams=1, retention_ms=3_600_000, replication=1
    )
    (tmp_path / "wrong").write_text("wrong")
    port = free_port()
    environment = {
        "BATON_KAFKA": kafka,
        "BATON_ZOOKEEPER": zookeeper,
        "BATON_NAMESPACE": namespace,
        "BATON_PORT": str(port),
        "BATON_ZOOKEEPER_USER": "baton",
        "BATON_ZOOKEEPER_PASSWORD_FILE": str(tmp_path / "wrong"),
    }
    stop = asyncio.Event()
    async with (
        running(serve(load(ConsumerSettings, environment), stop)),
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as http,
    ):

        async def answer() -> httpx.Response | None:
            with contextlib.suppress(httpx.TransportError):
                return await http.get("/readyz")
            return None

        async def is_refused() -> bool:
            found = await answer()
            why = f"ZooKeeper refuses the user 'baton': no right to {names.table}"
            return found is not None and found.status_code == 503 and why in found.text

        async def is_ready() -> bool:
            found = await answer()
            return found is not None and found.status_code == 200

        await until(is_refused)
        (tmp_path / "wrong").write_text("secret")
        await until(is_ready)
        stop.set()


async def test_the_command_line_locks_and_opens_what_exists(
    client: ZooKeeper, client_of: Client, root: str, namespace: str, zookeeper: str, tmp_path: Path
) -> None:
    """`baton zookeeper lock` and `unlock` change every znode of the namespace, and say how many."""
    stranger = await client_of("stranger")
    own = Names("x" + namespace)
    await stranger.make_path(own.members("g"))

    def baton(command: str, password_file: str) -> str:
        arguments = ["--zookeeper", zookeeper, "--namespace", own.namespace, "--user", "baton", "--yes"]
        argv = [sys.executable, "-m", "cli.main", "zookeeper", command, *arguments]
        argv += ["--password-file", str(tmp_path / password_file)]
        ended = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
        return ended.stdout + ended.stderr

    assert await asyncio.to_thread(baton, "lock", "own") == "4 znodes changed, 0 were so already\n"
    with pytest.raises(ZooKeeperRefused):
        await stranger.children(own.groups)
    assert await client.children(own.groups) == ["g"]
    assert await asyncio.to_thread(baton, "lock", "own") == "0 znodes changed, 4 were so already\n"
    (tmp_path / "wrong").write_text("wrong")
    refused = await asyncio.to_thread(baton, "unlock", "wrong")
    assert refused == f"baton: ZooKeeper refuses the user 'baton': no right to {own.root}\n"
    assert await asyncio.to_thread(baton, "unlock", "own") == "4 znodes changed, 0 were so already\n"
    assert await stranger.children(own.groups) == ["g"]


async def test_a_missing_password_file_delays_the_connection_only(
    zookeeper: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says which file is missing, and the client connects once it is there."""
    file = tmp_path / "late"
    late = ZooKeeper(zookeeper, TIMEOUT_S, access_source("baton", str(file)))
    with pytest.raises(ZooKeeperUnavailable):
        await late.connect(0.5)
    assert f"BATON_ZOOKEEPER_PASSWORD_FILE={file}: No such file" in str(vars(caplog.records[0]))

    file.write_text("secret\n")
    await late.connect(DEADLINE_S)
    await late.close()


async def test_a_password_file_that_hangs_holds_nothing_up(
    client: ZooKeeper, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client keeps its connection and the passwords that it knows, and waits in one thread only."""
    begun: list[SecretFile] = []
    may_end = threading.Event()

    def hang(file: SecretFile) -> tuple[str, ...]:
        begun.append(file)
        may_end.wait()
        return ("secret",)

    link = client._link
    monkeypatch.setattr(SecretFile, "read", hang)
    try:
        await until(lambda: begun)
        answered_s = client.answered_s
        await until(lambda: client.answered_s > answered_s + TIMEOUT_S / 2)
        assert (client._link, len(begun)) == (link, 1)
        assert await client.get(f"{root}/a") is not None
    finally:
        may_end.set()


async def test_a_server_that_demands_users_is_served(tmp_path: Path) -> None:
    """With `enforce.auth.enabled` it drops clients without a user; ours introduces itself first."""
    server = ZooKeeperServer(tmp_path / "server", demands_user=True)
    await asyncio.to_thread(server.start)
    try:
        (tmp_path / "password").write_text("secret")
        access = access_source("baton", str(tmp_path / "password"))
        async with ZooKeeper(server.address, TIMEOUT_S, access) as client:
            assert await client.create("/x")
            stranger = ZooKeeper(server.address, TIMEOUT_S)
            await stranger.connect(DEADLINE_S)
            with pytest.raises(ZooKeeperUnavailable):
                await stranger.children("/")
            await stranger.close()
    finally:
        await asyncio.to_thread(server.kill)
