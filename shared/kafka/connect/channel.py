"""One connection to one broker, opened when first used and again after it broke.

A broker answers the requests of a connection in order, so what must not wait for each other needs channels of
its own (`cluster.py` names them). A request that is not answered in time fails alone: the connection takes no
further ones, and closes once the others have their answers. After failures it waits before it connects again.
A connection whose session with the broker ends is replaced before that: aiokafka cannot re-authenticate, and
a broker closes a connection on which a request comes too late (KIP-368).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

from aiokafka.errors import KafkaError

from shared.backoff import Backoff
from shared.errors import KafkaUnavailable
from shared.kafka.connect.connection import Connection
from shared.together import together

CONNECT_TIMEOUT_S = 5.0
RENEW_AFTER = (0.85, 0.95)
"""The part of its session after which a connection is replaced, as in Kafka's own client: somewhere in
between, so that all of a process do not do it at once."""
_MUTE = "the broker does not answer the first request; it may demand another BATON_KAFKA_SECURITY_PROTOCOL"
_FAILURES = (KafkaError, OSError, TimeoutError, AssertionError, ValueError, NotImplementedError)
"""What aiokafka raises when a broker is away, or does not know a request. AssertionError: a connection that
closes while it is used; ValueError: an answer that cannot be read; NotImplementedError: no common version."""
Connect = Callable[[str, int], Awaitable[Connection]]
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
        live.enter()
        try:
            async with asyncio.timeout(timeout_s):
                response = await live.connection.send(request)
                live.has_answered = True
                return response
        except TimeoutError as error:
            self._retire(live)
            what = (
                f"no answer to {type(request).__name__} from {self.host}:{self.port} within {timeout_s:g} s"
            )
            raise KafkaUnavailable("Kafka did not answer in time", cause=what) from error
        except _FAILURES as error:
            self._retire(live)
            why = "Kafka cannot be asked" if live.has_answered else _MUTE
            raise KafkaUnavailable(why, cause=f"{self!r}: {error!r}") from error
        finally:
            live.leave()
            self._close_if_idle(live)

    @property
    def is_connected(self) -> bool:
        """Whether a request would be sent at once."""
        live = self._live
        return live is not None and live.connection.connected() and not live.is_old

    async def connect(self) -> None:
        """Connects, unless it is connected. Raises KafkaUnavailable; then nothing was sent."""
        await self._connected()

    async def close(self) -> None:
        """Closes the connection; requests under way fail. Never raises."""
        self._is_closed = True
        leaving = [live.connection for live in (*self._retired, self._live) if live is not None]
        self._retired.clear()
        self._live = None
        await together(connection.leave() for connection in leaving)

    async def _connected(self) -> _Live:
        async with self._lock:
            if self._is_closed:
                raise KafkaUnavailable("the client is closed")
            if self._live is not None and not self._live.connection.connected():
                self._retire(self._live)
            if self._live is None:
                self._live = await self._open()
            elif self._live.is_old:
                await self._renew(self._live)
            if self._live is None:
                raise KafkaUnavailable("the client is closed")
            return self._live

    async def _renew(self, old: _Live) -> None:
        """Puts a new connection in the place of one whose session ends; requests stay in their order.

        While the old session holds, a failure (the next token is not there yet) costs nothing.
        """
        try:
            new = await self._open()
        except KafkaUnavailable:
            if old.has_ended or not old.connection.connected():
                self._retire(old)
                self._close_if_idle(old)
                raise
            old.postpone()
            return
        self._retire(old)
        self._live = new
        # as on one connection, where the next request is answered after these
        await old.idle.wait()
        self._close_if_idle(old)

    async def _open(self) -> _Live:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, self._not_before_s - loop.time()))
        try:
            begun_s = loop.time()
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                connection = await self._connect(self.host, self.port)
        except KafkaUnavailable:
            self._not_before_s = loop.time() + self._backoff.next_s()
            raise
        except _FAILURES as error:
            self._not_before_s = loop.time() + self._backoff.next_s()
            raise KafkaUnavailable("Kafka cannot be reached", cause=f"{self!r}: {error!r}") from error
        if self._is_closed:
            connection.close()
            raise KafkaUnavailable("the client is closed")
        self._backoff.reset()
        self.connections += 1
        return _Live(connection, begun_s)

    def _retire(self, live: _Live) -> None:
        if live is self._live:
            self._live = None
            self._retired.add(live)

    def _close_if_idle(self, live: _Live) -> None:
        if live in self._retired and live.idle.is_set():
            self._retired.discard(live)
            live.connection.close()


class _Live:
    """A connection, how many requests wait for its answers, and when to replace it (times of the loop)."""

    def __init__(self, connection: Connection, begun_s: float) -> None:
        self.connection = connection
        self.idle = asyncio.Event()
        self.idle.set()
        self.has_answered = False
        self._waiting = 0
        self._ends_s = begun_s + connection.lifetime_s
        self._renew_s = begun_s + connection.lifetime_s * random.uniform(*RENEW_AFTER)

    @property
    def is_old(self) -> bool:
        """Whether it is time to replace it."""
        return self._now_s >= self._renew_s

    @property
    def has_ended(self) -> bool:
        """Whether the broker would close it at the next request."""
        return self._now_s >= self._ends_s

    def postpone(self) -> None:
        """Tries again after half of the time that is left."""
        self._renew_s = (self._now_s + self._ends_s) / 2

    def enter(self) -> None:
        """A request is about to be sent."""
        self._waiting += 1
        self.idle.clear()

    def leave(self) -> None:
        """A request has its answer, or has failed."""
        self._waiting -= 1
        if not self._waiting:
            self.idle.set()

    @property
    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()
