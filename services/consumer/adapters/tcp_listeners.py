"""Connections that show whether processes listen at members' addresses: `Listeners` on TCP.

A held connection is idle: nothing is asked, so a member's server waits for a request for as long as the
connection stands. With `https` the handshake is made as well, because a server ends connections without one.
Only a refusal by every address of the host counts as refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from urllib.parse import urlsplit

from services.consumer.ports import Ending
from shared.service.tls import TlsFiles, client_context

CONNECT_S = 2.0
HANDSHAKE_S = 5.0
ANSWER_BYTES = 1024
FAULTS = (OSError, UnicodeError, ValueError)
"""Why no connection can be made: the network, TLS (both OSError), an impossible address."""


class TcpListeners:
    """A `Listeners`; `tls`: how to reach members that speak HTTPS."""

    def __init__(self, tls: TlsFiles | None = None) -> None:
        self._tls = client_context(tls) if tls is not None else None

    async def hold(self, address: str, connected: Callable[[], None]) -> Ending:
        """Connects, calls `connected`, and returns how the connection has ended."""
        try:
            reader, writer = await self._connect(address, self._tls)
        except ConnectionRefusedError:
            return "refused"
        except FAULTS:
            return "failed"
        try:
            connected()
            with contextlib.suppress(OSError):
                while await reader.read(ANSWER_BYTES):
                    pass
            return "broke"
        finally:
            writer.transport.abort()

    async def is_open(self, address: str) -> bool | None:
        """Whether a process listens there; None if that cannot be found out."""
        try:
            _, writer = await self._connect(address, None)
        except ConnectionRefusedError:
            return False
        except FAULTS:
            return None
        writer.transport.abort()
        return True

    async def _connect(
        self, address: str, tls: ssl.SSLContext | None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Raises ConnectionRefusedError if every address of the host refuses, else any of FAULTS."""
        url = urlsplit(address)
        host, port = url.hostname or "", url.port or (443 if url.scheme == "https" else 80)
        context = tls if url.scheme == "https" else None
        async with asyncio.timeout(CONNECT_S + (HANDSHAKE_S if context is not None else 0.0)):
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
            refusal: ConnectionRefusedError | None = None
            other: OSError | None = None
            for place in dict.fromkeys(str(place[4][0]) for place in found):
                try:
                    return await asyncio.open_connection(
                        place, port, ssl=context, server_hostname=host if context is not None else None
                    )
                except ConnectionRefusedError as error:
                    refusal = error
                except OSError as error:
                    other = error
        raise other or refusal or OSError(f"{host} has no address")
