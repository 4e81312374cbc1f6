"""How much is in flight: bytes of requests that are being read or wait for Kafka, and their bound.

Bytes count as they arrive and as they are decoded, not as they are announced, so that a client which
promises a megabyte and sends nothing takes nothing. Used by the door.
"""

from __future__ import annotations

from services.producer.core.ingest import RequestTooLarge
from shared.errors import Unavailable


class Overloaded(Unavailable):
    """Too much is waiting for Kafka already; come again in a moment."""


class Inflight:
    """`0 <= bytes`; above `max_bytes` by at most the chunk that is refused for it."""

    __slots__ = ("bytes", "max_bytes")

    def __init__(self, max_bytes: int) -> None:
        self.bytes = 0
        self.max_bytes = max_bytes

    def __repr__(self) -> str:
        return f"<Inflight: {self.bytes} of {self.max_bytes} bytes>"


class Hold:
    """The share of one request in what is in flight; to be released when it is answered."""

    __slots__ = ("_bytes", "_encoded_bytes", "_inflight", "_max_request_bytes")

    def __init__(self, inflight: Inflight, max_request_bytes: int) -> None:
        self._inflight = inflight
        self._max_request_bytes = max_request_bytes
        self._bytes = 0
        self._encoded_bytes = 0

    def expect(self, length: int) -> None:
        """Raises RequestTooLarge when a request of this length would be, Overloaded without room for it."""
        self._check(length)
        if self._inflight.bytes + length > self._inflight.max_bytes:
            raise Overloaded

    def add(self, count: int) -> None:
        """So many bytes have arrived, or been decoded. Raises RequestTooLarge or Overloaded."""
        self._bytes += count
        self._inflight.bytes += count
        self._check(self._bytes - self._encoded_bytes)
        if self._inflight.bytes > self._inflight.max_bytes:
            raise Overloaded

    def begin_decoding(self) -> None:
        """What is held is encoded; what comes now is decoded, and counted against the limit anew."""
        self._encoded_bytes = self._bytes

    def end_decoding(self) -> None:
        """The encoded bytes are in flight no more."""
        self._inflight.bytes -= self._encoded_bytes
        self._bytes -= self._encoded_bytes
        self._encoded_bytes = 0

    def release(self) -> None:
        """Nothing of it is in flight any more."""
        self._inflight.bytes -= self._bytes
        self._bytes = 0

    def _check(self, length: int) -> None:
        if length > self._max_request_bytes:
            raise RequestTooLarge(f"a request may have at most {self._max_request_bytes} bytes")
