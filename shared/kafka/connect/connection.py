"""One connection to a broker: requests go out in order, and their answers come back in the same order.

aiokafka's own connection reads through an `asyncio.StreamReader`, which copies every byte three times and
pauses the socket every 128 KB: 1 µs for a fragment of 1 KB. Here the kernel writes a large answer straight
into its place, which takes 0.3 µs. Requests and answers are aiokafka's, or like them
(`wire/flexible.py`); `security.py` opens connections, and `channel.py` bounds the time of each request.
"""

from __future__ import annotations

import asyncio
import math
import ssl
from collections import deque
from io import BytesIO
from struct import Struct
from typing import Any, Self, cast

from aiokafka.errors import CorrelationIdError, KafkaConnectionError
from aiokafka.protocol.admin import ApiVersionRequest

CLIENT_ID = "baton"
GOODBYE_S = 1.0
SMALL = 64 * 1024
"""Answers up to this size are received together with what follows them; larger ones into their own memory."""
MOST = 512 * 1024 * 1024
"""A larger answer is none: something else than Kafka answers, or it wants TLS."""
_SIZE = Struct(">i")


class Connection(asyncio.BufferedProtocol):
    """A connection on which the broker accepts requests for `lifetime_s` seconds after it was opened."""

    def __init__(self, host: str, port: int) -> None:
        self.lifetime_s = math.inf
        self.transport: asyncio.Transport | None = None
        self._name = f"{host}:{port}"
        self._versions: dict[int, tuple[int, int]] = {}
        self._waiting: deque[tuple[int, Any, asyncio.Future[Any]]] = deque()
        """Correlation id, request and future of each request that was sent."""
        self._sent = 0
        self._is_closed = False
        self._lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._small = bytearray(SMALL)
        self._held = 0
        """How many bytes of `_small` were received and not taken."""
        self._large = bytearray()
        self._missing: memoryview | None = None
        """The rest of the large answer that is under way."""

    def __repr__(self) -> str:
        return f"<Connection to {self._name}, {len(self._waiting)} requests>"

    @classmethod
    async def open(cls, host: str, port: int, tls: ssl.SSLContext | None) -> Self:
        """A connection to a broker whose versions are known. Raises OSError and KafkaError."""
        connection = cls(host, port)
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: connection, host, port, ssl=tls)
            found = await connection.send(ApiVersionRequest())
        except Exception:
            await connection.leave()
            raise
        except BaseException:  # a cancellation
            connection.close()
            raise
        connection._versions = {key: (least, most) for key, least, most in found.api_versions}
        return connection

    def connected(self) -> bool:
        """Whether requests can be sent."""
        return self.transport is not None and not self._is_closed

    def send(self, request: Any) -> asyncio.Future[Any]:
        """Sends a request; the future gets its answer, or KafkaConnectionError when the connection ends.

        Raises KafkaConnectionError if it has ended, IncompatibleBrokerVersion.
        """
        if self.transport is None or self._is_closed:
            raise KafkaConnectionError(f"no connection to {self._name}")
        request = request.prepare(self._versions)
        self._sent = (self._sent + 1) % 2**31
        header = request.build_request_header(correlation_id=self._sent, client_id=CLIENT_ID).encode()
        body = request.encode()
        self.transport.writelines((_SIZE.pack(len(header) + len(body)) + header, body))
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((self._sent, request, answered))
        return answered

    def close(self) -> None:
        """Closes the connection; requests under way fail."""
        self._end(None)

    async def leave(self) -> None:
        """Closes it, and waits for TLS to say goodbye, which a loop that ends at once would cut off."""
        self.close()
        if self.transport is not None:
            await asyncio.wait([self._lost], timeout=GOODBYE_S)
            if not self._lost.done():
                self.transport.abort()

    def _end(self, why: BaseException | None) -> None:
        self._is_closed = True
        if self.transport is not None:
            self.transport.close()
        waiting, self._waiting = self._waiting, deque()
        for _, _, answered in waiting:
            if not answered.done():
                error = KafkaConnectionError(f"the connection to {self._name} is closed")
                error.__cause__ = why
                answered.set_exception(error)

    # what the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc)
        if not self._lost.done():
            self._lost.set_result(None)

    def eof_received(self) -> None:
        self._end(None)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._missing if self._missing is not None else memoryview(self._small)[self._held :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._missing is None:
            self._held += nbytes
            self._take_small()
            return
        self._missing = self._missing[nbytes:]
        if not self._missing:
            self._missing, large, self._large = None, self._large, bytearray()
            self._answer(large)

    def _take_small(self) -> None:
        """Takes the answers that are complete, and begins a large one."""
        at = 0
        while self._held - at >= _SIZE.size and not self._is_closed:
            size = _SIZE.unpack_from(self._small, at)[0]
            if not 0 <= size <= MOST:
                self._end(ValueError(f"an answer of {size} bytes"))
                return
            begin, end = at + _SIZE.size, at + _SIZE.size + size
            if end <= self._held:
                self._answer(self._small[begin:end])
                at = end
            elif _SIZE.size + size > SMALL:
                self._large = bytearray(size)
                self._missing = memoryview(self._large)[self._held - begin :]
                self._large[: self._held - begin] = self._small[begin : self._held]
                at = self._held
            else:
                break
        self._small[: self._held - at] = self._small[at : self._held]
        self._held -= at

    def _answer(self, data: bytearray) -> None:
        """Decodes the answer to the oldest request."""
        if not self._waiting:
            self._end(ValueError("an answer to no request"))
            return
        correlation_id, request, answered = self._waiting[0]
        try:
            buffer = BytesIO(data)
            found = request.parse_response_header(buffer).correlation_id
            if found != correlation_id:
                raise CorrelationIdError(f"an answer to {found}, not to {correlation_id}")
            # one that nobody awaits any more is not decoded
            answer = None if answered.done() else request.RESPONSE_TYPE.decode(buffer)
        except Exception as error:  # whatever a codec raises at bytes that it does not expect
            self._end(error)
            return
        self._waiting.popleft()
        if not answered.done():
            answered.set_result(answer)
