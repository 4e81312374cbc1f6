"""Which answers prove to a client of ZooKeeper that its session lives; its servers are stand-ins."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from aiozk import protocol

from services.consumer.core.ownership.lease import Lease
from shared.errors import ZooKeeperUnavailable
from shared.zookeeper import connection
from shared.zookeeper.connection import ZooKeeper
from shared.zookeeper.link import Credentials, Link
from shared.zookeeper.znodes import Check, Znode
from tests.fakes.virtual_time import virtual_time

TIMEOUT_S = 6.0


class Ensemble:
    """The leader's view of one session, and the servers that cannot reach the leader."""

    def __init__(self) -> None:
        self.cut_off: set[str] = set()
        self.heard_s = 0.0
        self.sessions = 0
        self.links: list[str] = []

    def now_s(self) -> float:
        return asyncio.get_running_loop().time()

    @property
    def expires_s(self) -> float:
        """When the leader ends the session unless it hears of it before."""
        return self.heard_s + TIMEOUT_S


class StandInLink:
    """A connection to one server: it answers reads itself, and passes everything else on to the leader."""

    ensemble: Ensemble

    def __init__(
        self, server: str, timeout_s: float, old: Credentials | None, on_event: Callable[[str], None]
    ) -> None:
        self.server = server
        self.timeout_s = timeout_s
        self.lost = asyncio.Event()
        self._old = old
        self.session_id = 0

    @property
    def is_usable(self) -> bool:
        return not self.lost.is_set()

    @property
    def credentials(self) -> Credentials:
        return Credentials(session_id=self.session_id, password=b"", zxid=None)

    async def open(self, access: None) -> None:
        await self._pass_on()
        expired = self.ensemble.now_s() > self.ensemble.expires_s
        if self._old is None or expired:
            self.ensemble.sessions += 1
            self.session_id = self.ensemble.sessions
        else:
            self.session_id = self._old.session_id
        self.ensemble.heard_s = self.ensemble.now_s()
        self.ensemble.links.append(self.server)

    async def ping(self) -> None:
        await self._pass_on()
        self.ensemble.heard_s = self.ensemble.now_s()

    async def transact(self, operations: Any) -> bool:
        await self._pass_on()
        self.ensemble.heard_s = self.ensemble.now_s()
        return False

    async def get(self, path: str, watch: bool, awaits_creation: bool) -> Znode | None:
        await asyncio.sleep(0.001)
        return None

    async def abandon(self) -> None:
        self.lost.set()

    async def end_session(self) -> None:
        pass

    async def _pass_on(self) -> None:
        await asyncio.sleep(0.001)
        if self.server in self.ensemble.cut_off:
            await asyncio.Event().wait()


@pytest.fixture
def ensemble(monkeypatch: pytest.MonkeyPatch) -> Ensemble:
    ensemble = Ensemble()
    monkeypatch.setattr(StandInLink, "ensemble", ensemble, raising=False)
    monkeypatch.setattr(connection, "Link", StandInLink)
    monkeypatch.setattr("shared.zookeeper.connection.random.shuffle", lambda hosts: None)
    return ensemble


def lease_of(client: ZooKeeper) -> Lease:
    return Lease(answered_s=client.answered_s, timeout_s=TIMEOUT_S)


@virtual_time
async def test_a_server_cut_off_from_its_leader_does_not_extend_the_lease(ensemble: Ensemble) -> None:
    """It still answers reads, while the leader ends the session of the member that reads there."""
    client = ZooKeeper("a", TIMEOUT_S, clock=ensemble.now_s)
    await client.connect(1)
    await asyncio.sleep(10)

    ensemble.cut_off.add("a")
    while ensemble.now_s() < ensemble.expires_s:
        with contextlib.suppress(ZooKeeperUnavailable):
            await client.get("/x")
        await asyncio.sleep(0.1)

    assert not lease_of(client).is_alive(ensemble.now_s())
    await client.close()


@virtual_time
async def test_a_client_leaves_a_server_cut_off_from_its_leader(ensemble: Ensemble) -> None:
    """It moves to another server of the ensemble in the same session, before its lease has ended."""
    client = ZooKeeper("a,b", TIMEOUT_S, clock=ensemble.now_s)
    await client.connect(1)
    await asyncio.sleep(10)
    assert client.session is not None
    before = client.session.id

    ensemble.cut_off.add("a")
    for _ in range(100):
        assert lease_of(client).is_alive(ensemble.now_s())
        await asyncio.sleep(0.1)

    assert ensemble.links == ["a", "b"]
    assert client.session.id == before
    await client.close()


@virtual_time
async def test_an_answered_write_extends_the_lease_and_a_read_does_not(ensemble: Ensemble) -> None:
    """Writes pass through the leader, also those that it refuses."""
    client = ZooKeeper("a", 60.0, clock=ensemble.now_s)
    await client.connect(1)
    await asyncio.sleep(5)
    before = client.answered_s

    await client.get("/x")
    after_read = client.answered_s
    await client.transact([Check("/x", 0)])

    assert (before, after_read) == (before, before)
    assert client.answered_s == ensemble.now_s() - 0.001
    await client.close()


@virtual_time
async def test_a_missing_znode_that_is_not_awaited_is_not_remembered(ensemble: Ensemble) -> None:
    """Otherwise every reconnection would ask again for all that ever was."""
    client = ZooKeeper("a", TIMEOUT_S, clock=ensemble.now_s)
    await client.connect(1)

    await client.get("/x", watch=lambda path: None, awaits_creation=False)
    forgotten = dict(client._watches)
    await client.get("/x", watch=lambda path: None)

    assert forgotten == {}
    assert client._watches.keys() == {"/x"}
    await client.close()


async def test_a_ping_is_answered_by_the_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower passes `sync` on to its leader; any read it would answer itself."""
    link = Link("127.0.0.1:1", TIMEOUT_S, None, lambda path: None)
    sent: list[protocol.Request] = []

    async def send(request: protocol.Request) -> None:
        sent.append(request)

    monkeypatch.setattr(link.client, "send", send)
    await link.ping()

    assert [type(request) for request in sent] == [protocol.SyncRequest]
