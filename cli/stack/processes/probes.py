"""Readiness probes: whether the servers and services of the stack really answer.

Each probe asks once, in bounded time, and returns True or False; it never raises. The caller repeats it.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl

from cli.stack.faults import PortOccupied
from shared.errors import BatonError
from shared.kafka.admin.topics import list_topics
from shared.kafka.connect.access import Kafka
from shared.service.tls import TlsFiles, client_context

PROBE_TIMEOUT_S = 3.0


async def zookeeper_answers(address: str) -> bool:
    """Whether the server at `host:port` serves requests, not just accepts connections."""
    return b"Mode:" in (await _ask(address, b"srvr") or b"")


async def kafka_answers(kafka: Kafka) -> bool:
    """Whether the broker lists its topics."""
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            await list_topics(kafka)
    except (BatonError, TimeoutError):
        return False
    return True


async def listens(host: str, port: int) -> bool:
    """Whether a process accepts connections there."""
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            _, writer = await asyncio.open_connection(host, port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


async def is_ready(host: str, port: int, tls: TlsFiles | None = None) -> bool:
    """Whether the service's `/readyz` answers 200; with `tls` over HTTPS."""
    # by hand: our HTTP client would go through a proxy of the environment
    request = f"GET /readyz HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n"
    context = client_context(tls) if tls is not None else None
    status, _, _ = (await _ask(f"{host}:{port}", request.encode(), context) or b"").partition(b"\r\n")
    return status.startswith(b"HTTP/1.1 200 ")


def check_ports(host: str, ports: dict[str, int]) -> None:
    """Raises PortOccupied, which names every port in use and the process that needs it."""
    occupied = [f"{port} ({name})" for name, port in ports.items() if not _is_free(host, port)]
    if occupied:
        raise PortOccupied(
            f"port {', '.join(occupied)} of {host} is in use: stop what uses it, or choose a --port-offset"
        )


async def _ask(address: str, request: bytes, tls: ssl.SSLContext | None = None) -> bytes | None:
    """What a server sends until it closes the connection; None if it refuses or takes too long."""
    host, _, port = address.rpartition(":")
    writer = None
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(host, int(port), ssl=tls)
            writer.write(request)
            return await reader.read()
    except (OSError, TimeoutError):
        return None
    finally:
        if writer is not None:
            writer.close()


def _is_free(host: str, port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            return error.errno not in (errno.EADDRINUSE, errno.EACCES)
    return True
