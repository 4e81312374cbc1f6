"""Readiness probes on real sockets: an open port is not yet a ready server."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from cli.stack.faults import PortOccupied
from cli.stack.processes import probes
from cli.stack.processes.probes import check_ports, is_ready, kafka_answers, zookeeper_answers
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
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", [True, False]),
        (b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n", [False, False]),
        (b"Zookeeper version: 3.9.5\nMode: standalone\n", [False, True]),
        (b"what is HTTP?\r\n\r\n", [False, False]),
        (b"", [False, False]),
    ],
)
async def test_a_service_is_ready_with_200_and_zookeeper_when_it_reports_its_mode(
    server: OneAnswer, answer: bytes, ready: list[bool]
) -> None:
    """With any other answer neither is ready: ZooKeeper reports no mode before it serves requests."""
    server.answer = answer

    probed = [await is_ready("127.0.0.1", server.port), await zookeeper_answers(f"127.0.0.1:{server.port}")]

    assert probed == ready


async def test_a_port_that_refuses_or_never_answers_means_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """For every probe, in bounded time and without an exception."""
    monkeypatch.setattr(probes, "PROBE_TIMEOUT_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for port in (free_port(), silent.getsockname()[1]):
            assert not await zookeeper_answers(f"127.0.0.1:{port}")
            assert not await kafka_answers(f"127.0.0.1:{port}")
            assert not await is_ready("127.0.0.1", port)


def test_occupied_ports_are_named_with_their_process() -> None:
    """All of them in one sentence, without the free ones."""
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
        first, second, free = one.getsockname()[1], two.getsockname()[1], free_port()

        with pytest.raises(PortOccupied) as caught:
            check_ports("127.0.0.1", {"kafka": first, "control": free, "producer": second})

    assert f"port {first} (kafka), {second} (producer) of 127.0.0.1 is in use" in caught.value.detail
    assert str(free) not in caught.value.detail
