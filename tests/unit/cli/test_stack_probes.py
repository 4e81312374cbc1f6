"""Readiness probes on real sockets: an open port is not yet a ready server."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from cli.stack import probes
from cli.stack.faults import PortOccupied
from cli.stack.probes import check_ports, is_ready, kafka_answers, zookeeper_answers
from tests.servers import free_port


class OneAnswer:
    """A server that answers the first bytes of every request with the same bytes."""

    answer = b""
    port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4)
        writer.write(self.answer)
        writer.close()


@pytest.fixture
async def server() -> AsyncIterator[OneAnswer]:
    one = OneAnswer()
    listener = await asyncio.start_server(one.serve, "127.0.0.1", 0)
    one.port = listener.sockets[0].getsockname()[1]
    async with listener:
        yield one


@pytest.mark.parametrize(
    ("answer", "ready"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", True),
        (b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n", False),
        (b"what is HTTP?\r\n\r\n", False),
        (b"", False),
    ],
)
async def test_a_service_is_ready_when_readyz_returns_200(
    server: OneAnswer, answer: bytes, ready: bool
) -> None:
    """With any other status, or without HTTP, it is not ready."""
    server.answer = answer

    assert await is_ready("127.0.0.1", server.port) is ready


@pytest.mark.parametrize(
    ("answer", "ready"), [(b"Zookeeper version: 3.9.5\nMode: standalone\n", True), (b"not serving", False)]
)
async def test_zookeeper_is_ready_when_it_reports_its_mode(
    server: OneAnswer, answer: bytes, ready: bool
) -> None:
    """Before it serves requests, it reports none."""
    server.answer = answer

    assert await zookeeper_answers(f"127.0.0.1:{server.port}") is ready


async def test_a_refused_connection_means_not_ready() -> None:
    """For every probe, without an exception."""
    port = free_port()

    assert not await zookeeper_answers(f"127.0.0.1:{port}")
    assert not await kafka_answers(f"127.0.0.1:{port}")
    assert not await is_ready("127.0.0.1", port)


async def test_an_unresponsive_server_means_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """A port that accepts connections without answering does not block a probe."""
    monkeypatch.setattr(probes, "PROBE_TIMEOUT_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        assert not await zookeeper_answers(f"127.0.0.1:{port}")
        assert not await is_ready("127.0.0.1", port)


def test_occupied_ports_are_named_with_their_process() -> None:
    """All of them in one sentence, without the free ones."""
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
        first, second, free = one.getsockname()[1], two.getsockname()[1], free_port()

        with pytest.raises(PortOccupied) as caught:
            check_ports("127.0.0.1", {"kafka": first, "control": free, "producer": second})

    assert f"port {first} (kafka), {second} (producer) of 127.0.0.1 is in use" in caught.value.detail
    assert str(free) not in caught.value.detail
