"""One connection to one broker, opened when first used and again after it broke.

A broker answers the requests of a connection in order, so what must not wait for each other needs channels of
its own (`cluster.py` names them). A request that is not answered in time fails alone: the connection takes no
further ones, and closes once the others have their answers. After failures it waits before it connects again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aiokafka.conn import AIOKafkaConnection

from shared.backoff import Backoff
from shared.errors import KafkaUnavailable
from shared.kafka.clients import KAFKA_FAILURES

CONNECT_TIMEOUT_S = 5.0
Connect = Callable[[str, int], Awaitable[AIOKafkaConnection]]
"""Opens a connection to host and port, with all that it takes to be let in."""


class Channel:
    """Requests to one broker. `connections`: how many it has opened; grows with each new one."""

    def __init__(self, host: str, port: int, connect: Connect) -> None:
        self.host, self.port = host, port
        self.connections = 0
        self._connect = connect
        self._live: _Live | None = None
        self._retired: set[_Live] = set()
        self._lock = asyncio.Lock()
        self._backoff = Backoff(first_s=0.02, cap_s=1.0)
        self._not_before_s = 0.0
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<Channel to {self.host}:{self.port}, connection {self.connections}>"

    async def request(self, request: Any, timeout_s: float) -> Any:
        """The broker's response. Raises KafkaUnavailable; then it is unknown whether the broker acted."""
        live = await self._connected()
        live.waiting += 1
        try:
            async with asyncio.timeout(timeout_s):
                return await live.connection.send(request)
        except TimeoutError as error:
            self._retire(live)
            raise KafkaUnavailable("Kafka did not answer in time", cause=f"{self!r}") from error
        except (*KAFKA_FAILURES, ValueError) as error:
            self._retire(live)
            raise KafkaUnavailable("Kafka cannot be asked", cause=f"{self!r}: {error!r}") from error
        finally:
            live.waiting -= 1
            self._close_if_idle(live)

    async def close(self) -> None:
        """Closes the connection; requests under way fail. Never raises."""
        self._is_closed = True
        for live in {*self._retired, self._live} - {None}:
            assert live is not None
            live.connection.close()
        self._retired.clear()
        self._live = None

    async def _connected(self) -> _Live:
        async with self._lock:
            if self._is_closed:
                raise KafkaUnavailable("the client is closed")
            if self._live is not None and not self._live.connection.connected():
                self._retire(self._live)
            if self._live is None:
                await self._open()
            assert self._live is not None
            return self._live

    async def _open(self) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, self._not_before_s - loop.time()))
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                connection = await self._connect(self.host, self.port)
        except KAFKA_FAILURES as error:
            self._not_before_s = loop.time() + self._backoff.next_s()
            raise KafkaUnavailable("Kafka cannot be reached", cause=f"{self!r}: {error!r}") from error
        if self._is_closed:
            connection.close()
            raise KafkaUnavailable("the client is closed")
        self._backoff.reset()
        self.connections += 1
        self._live = _Live(connection)

    def _retire(self, live: _Live) -> None:
        if live is self._live:
            self._live = None
            self._retired.add(live)

    def _close_if_idle(self, live: _Live) -> None:
        if live in self._retired and not live.waiting:
            self._retired.discard(live)
            live.connection.close()


class _Live:
    """A connection and how many requests wait for its answers."""

    def __init__(self, connection: AIOKafkaConnection) -> None:
        self.connection = connection
        self.waiting = 0
