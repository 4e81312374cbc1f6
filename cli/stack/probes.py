"""Readiness probes: whether the servers and services of the stack really answer.

Each probe asks once, in bounded time, and returns True or False; it never raises. The caller repeats it.
"""

from __future__ import annotations

import asyncio
import errno
import http.client
import socket

from cli.stack.faults import PortOccupied
from shared.errors import BatonError
from shared.kafka.topics import list_topics

PROBE_TIMEOUT_S = 3.0


async def zookeeper_answers(address: str) -> bool:
    """Whether the server at `host:port` serves requests, not just accepts connections."""
    host, _, port = address.rpartition(":")
    writer = None
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"srvr")
            return b"Mode:" in await reader.read()
    except (OSError, TimeoutError):
        return False
    finally:
        if writer is not None:
            writer.close()


async def kafka_answers(address: str) -> bool:
    """Whether the broker lists its topics."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            # connect without aiokafka first: it logs an error for every refused connection
            _, writer = await asyncio.open_connection(host, int(port))
            writer.close()
            await list_topics(address)
    except (BatonError, OSError, TimeoutError):
        return False
    return True


async def is_ready(url_host: str, port: int) -> bool:
    """Whether the service's `/readyz` answers 200."""
    return await asyncio.to_thread(_readyz, url_host, port)


def check_ports(host: str, ports: dict[str, int]) -> None:
    """Raises PortOccupied, which names every port in use and the process that needs it."""
    occupied = [f"{port} ({name})" for name, port in ports.items() if not _is_free(host, port)]
    if occupied:
        raise PortOccupied(
            f"port {', '.join(occupied)} of {host} is in use: stop what uses it, or choose a --port-offset"
        )


def _readyz(host: str, port: int) -> bool:
    # http.client never uses a proxy from the environment
    connection = http.client.HTTPConnection(host, port, timeout=PROBE_TIMEOUT_S)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _is_free(host: str, port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            return error.errno not in (errno.EADDRINUSE, errno.EACCES)
    return True
