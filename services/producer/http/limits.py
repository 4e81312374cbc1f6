"""How much is in flight: bytes of requests that are being read or wait for Kafka, and their bound.

Bytes count as they arrive and as they are decoded, not as they are announced, so that a client which
promises a megabyte and sends nothing takes nothing. Bodies that are still arriving may have half of the
room: who has been sending for longest goes first, so that slow senders take none of it from others.
Used by the door.
"""

from __future__ import annotations

from collections.abc import Callable

from services.producer.core.ingest import RequestTooLarge
from shared.errors import Unavailable

REQUEST_BYTES = 8 * 1024
"""What a request takes up beside its body: its task, its headers, its share of the batches. Not measured to
the byte; without it a flood of tiny fragments could fill any memory.
"""


class Overloaded(Unavailable):
    """Too much is waiting for Kafka already; come again in a moment."""


class Inflight:
    """`bytes` of the bodies of `requests` requests; with REQUEST_BYTES for each of these they are above
    `max_bytes` by at most the chunk that is refused for it.

    `arriving` are the holds of bodies of which a part is there, the oldest first, and how to give each up.
    """

    __slots__ = ("arriving", "arriving_bytes", "bytes", "max_bytes", "requests")

    def __init__(self, max_bytes: int) -> None:
        self.bytes = self.requests = 0
        self.max_bytes = max_bytes
        self.arriving: dict[InflightShare, Callable[[], None]] = {}
        self.arriving_bytes = 0

    def __repr__(self) -> str:
        return f"<Inflight: {self.bytes} of {self.max_bytes} bytes, {self.requests} requests>"

    def is_full(self, more: int = 0) -> bool:
        """Whether there is no room, for `more` bytes."""
        return self.bytes + self.requests * REQUEST_BYTES + more > self.max_bytes

    def give_up_the_slowest(self) -> None:
        """Gives up the oldest of the bodies that are arriving, until all together fit into half the room."""
        while self.arriving_bytes > self.max_bytes // 2:
            hold, give_up = next(iter(self.arriving.items()))
            hold.arrived()
            give_up()


class InflightShare:
    """The share of one request in what is in flight; to be released when it is answered."""

    __slots__ = (
        "_bytes",
        "_encoded_bytes",
        "_inflight",
        "_is_arriving",
        "_is_released",
        "_max_request_bytes",
    )

    def __init__(self, inflight: Inflight, max_request_bytes: int) -> None:
        self._inflight = inflight
        self._max_request_bytes = max_request_bytes
        self._bytes = 0
        self._encoded_bytes = 0
        self._is_arriving = self._is_released = False
        inflight.requests += 1

    def expect(self, length: int) -> None:
        """Raises RequestTooLarge when a request of this length would be, Overloaded without room for it."""
        self._check(length)
        if self._inflight.is_full(length):
            raise Overloaded

    def add(self, count: int) -> None:
        """So many bytes have arrived, or been decoded. Raises RequestTooLarge or Overloaded."""
        self._bytes += count
        self._inflight.bytes += count
        if self._is_arriving:
            self._inflight.arriving_bytes += count
            self._inflight.give_up_the_slowest()
        self._check(self._bytes - self._encoded_bytes)
        if self._inflight.is_full():
            raise Overloaded

    def arrives(self, give_up: Callable[[], None]) -> None:
        """Only a part of the body is there; `give_up` ends the waiting for the rest."""
        self._is_arriving = True
        self._inflight.arriving[self] = give_up
        self._inflight.arriving_bytes += self._bytes
        self._inflight.give_up_the_slowest()

    def arrived(self) -> None:
        """The body is there, or given up."""
        if self._is_arriving:
            self._is_arriving = False
            del self._inflight.arriving[self]
            self._inflight.arriving_bytes -= self._bytes

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
        self.arrived()
        self._inflight.bytes -= self._bytes
        self._bytes = 0
        if not self._is_released:
            self._is_released = True
            self._inflight.requests -= 1

    def _check(self, length: int) -> None:
        if length > self._max_request_bytes:
            raise RequestTooLarge(f"a request may have at most {self._max_request_bytes} bytes")
