"""Opens the listeners of a service: each of their connections is an `HttpConnection`, with its bounds.

Uvicorn accepts connections and stops in order. Used by the services' mains.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import uvicorn

from shared.errors import BatonError
from shared.server.bounds import Bounds
from shared.server.connection import HttpConnection
from shared.server.face import Face
from shared.service.tls import TlsFiles, server_context

LAST_ANSWERS_S = 1.0
"""How long a stop waits for the answers of the requests that it cancels, if their clients read slowly."""


class _Server(uvicorn.Server):
    """Uvicorn without signal handlers (`runtime.py` has them), which answers what it cancels at a stop."""

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        for connection in list(self.server_state.connections):
            # of a connection of ours: it may answer requests without a task
            cast(HttpConnection, connection).cut()
        # uvicorn cancels requests that take too long and returns: the process could end before their answers
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_ANSWERS_S):
                while tasks := self.server_state.tasks:
                    await asyncio.wait(tasks)


def listen(host: str, port: int) -> socket.socket:
    """A socket bound to host:port. Raises BatonError when the port is occupied."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise BatonError(f"cannot listen at {host}:{port}: {error.strerror}") from None
    return listener


@contextlib.asynccontextmanager
async def http_server(
    face: Face,
    host: str,
    port: int,
    *,
    bounds: Bounds | None = None,
    tls: TlsFiles | None = None,
    grace_s: float = 5,
    connect: Callable[..., HttpConnection] = HttpConnection,
) -> AsyncIterator[None]:
    """Serves `face` at host:port during the block; then requests in flight have `grace_s` to finish.

    Speaks HTTPS if `tls` has a certificate. Raises BatonError when the port is occupied.
    """
    # bound here, because uvicorn would end the process on an occupied port
    listener = listen(host, port)
    options: dict[str, Any] = {
        "http": functools.partial(connect, face=face, bounds=bounds or Bounds()),
        "ws": "none",
        "lifespan": "off",
        "access_log": False,
        "log_config": None,
        # a face whose answers depend on a client's address decides itself which proxies it believes
        "proxy_headers": False,
        "timeout_graceful_shutdown": grace_s,
    }
    if tls is not None and tls.is_serving:
        options["ssl_context_factory"] = lambda config, default: server_context(tls)
    server = _Server(uvicorn.Config(face.app, **options))
    serving = asyncio.create_task(server.serve(sockets=[listener]), name="http server")
    try:
        while not server.started and not serving.done():  # noqa: ASYNC110  uvicorn has only this flag
            await asyncio.sleep(0.005)
        if serving.done():
            serving.result()
        yield
    finally:
        server.should_exit = True
        await serving
        listener.close()
