"""Connections to members' ports on real sockets: what stands, breaks, is refused, or gets no answer."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from fastapi import FastAPI

from cli.stack.secured.certificates import make_authority
from services.consumer.adapters import tcp_listeners
from services.consumer.adapters.tcp_listeners import TcpListeners
from services.consumer.ports import Ending
from shared.server.face import Face
from shared.server.listener import http_server
from shared.service.tls import TlsFiles
from tests.servers import free_port
from tests.waiting import until

LONGER_THAN_KEEP_ALIVE_S = 6.0
QUICKLY_S = 2.0
"""Far below the 5 s that a server gives requests in flight."""


class Held:
    """A connection that is being held."""

    def __init__(self, listeners: TcpListeners, address: str) -> None:
        self.is_connected = asyncio.Event()
        self.task: asyncio.Task[Ending] = asyncio.create_task(listeners.hold(address, self.is_connected.set))

    async def connected(self) -> None:
        async with asyncio.timeout(10):
            await self.is_connected.wait()


@contextlib.asynccontextmanager
async def member(tls: TlsFiles | None = None) -> AsyncIterator[str]:
    """The HTTP face of a member; its address."""
    port = free_port()
    async with http_server(Face(FastAPI()), "127.0.0.1", port, tls=tls):
        yield f"{'https' if tls is not None else 'http'}://127.0.0.1:{port}"


@pytest.fixture(params=["http", "https"])
def tls(request: pytest.FixtureRequest, tmp_path: Path) -> TlsFiles | None:
    """What members show each other, if anything."""
    if request.param == "http":
        return None
    authority = make_authority(tmp_path / "ca")
    made, trust = authority.issue("member"), str(authority.trust)
    return TlsFiles(certificate=str(made.certificate), key=str(made.key), ca=trust, client_ca=trust)


async def test_an_idle_connection_stands_until_the_process_ends_and_holds_up_no_stop(
    tls: TlsFiles | None,
) -> None:
    """Longer than a server keeps a connection alive between requests; then nothing listens there."""
    listeners = TcpListeners(tls)
    async with contextlib.AsyncExitStack() as living:
        address = await living.enter_async_context(member(tls))
        held = Held(listeners, address)
        await held.connected()

        await asyncio.wait([held.task], timeout=LONGER_THAN_KEEP_ALIVE_S)
        still_stands = not held.task.done()
        is_open = await listeners.is_open(address)
        async with asyncio.timeout(QUICKLY_S):
            await living.aclose()

    async with asyncio.timeout(QUICKLY_S):
        ending = await held.task
        again = await Held(listeners, address).task

    assert still_stands
    assert (ending, again) == ("broke", "refused")
    assert (is_open, await listeners.is_open(address)) == (True, False)


async def test_a_server_that_we_do_not_trust_is_no_dead_one(tmp_path: Path) -> None:
    """The handshake fails, which is no refusal; its port is open all the same."""
    own, other = make_authority(tmp_path / "own"), make_authority(tmp_path / "other")
    shown, made = own.issue("member"), other.issue("member")
    served = TlsFiles(certificate=str(shown.certificate), key=str(shown.key), ca=str(own.trust))
    listeners = TcpListeners(
        TlsFiles(certificate=str(made.certificate), key=str(made.key), ca=str(other.trust))
    )
    async with member(served) as address:
        assert await Held(listeners, address).task == "failed"
        assert await listeners.is_open(address) is True


@pytest.mark.parametrize(
    "address",
    ["http://127.0.0.1:0", "http://no-such-host.invalid:1", "http://[::", "http://127.0.0.1:99999", ""],
)
async def test_an_impossible_address_shows_nothing(address: str) -> None:
    """Neither an open port nor a refusal, and no error."""
    listeners = TcpListeners()

    found = await listeners.is_open(address), await Held(listeners, address).task

    assert found in [(None, "failed"), (False, "refused")]  # port 0 is refused by some systems


async def test_a_host_that_does_not_answer_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full backlog drops what arrives, as a lost host does."""
    monkeypatch.setattr(tcp_listeners, "CONNECT_S", 0.3)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, contextlib.ExitStack() as clients:
        place = full.getsockname()
        for _ in range(4):
            client = clients.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(place)
        listeners = TcpListeners()

        async def is_silent() -> bool:
            return await listeners.is_open(f"http://127.0.0.1:{place[1]}") is None

        await until(is_silent)

        assert await Held(listeners, f"http://127.0.0.1:{place[1]}").task == "failed"


async def test_a_name_with_two_addresses_is_refused_only_by_both() -> None:
    """`localhost` may be one address or two; a process usually listens at one of them."""
    listeners = TcpListeners()
    async with member() as address:
        port = address.rpartition(":")[2]
        assert await listeners.is_open(f"http://localhost:{port}") is True
    assert await listeners.is_open(f"http://localhost:{port}") is False
