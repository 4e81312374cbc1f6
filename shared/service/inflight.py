"""The bound on what is in flight: the bytes of all requests that are being read or wait for Kafka.

Bytes count as they arrive and as they are decoded, not as they are announced: a client that announces a
megabyte and sends nothing occupies nothing. Bodies that are still arriving may fill half of the room. Beyond
that the oldest upload is dropped first, so slow senders cannot starve others. Requests that wait behind an
earlier one of their connection may fill a quarter. Decoded bytes count piece by piece, as encoded ones do, so
a body that would be too large is rejected at the limit. Used by the producer and the queue.
"""

from __future__ import annotations

from collections.abc import Callable

from shared.errors import Unavailable
from shared.model.form import Coding
from shared.model.items import RequestTooLarge
from shared.service.decoding import decoded

REQUEST_BYTES = 8 * 1024
"""What a request occupies besides its body: its task, its headers, its share of the batches. An estimate;
without it a flood of tiny fragments could fill any memory.
"""


class Overloaded(Unavailable):
    """Too many bytes are in flight; retry in a moment."""


class Inflight:
    """What all requests occupy: `bytes` of bodies, and REQUEST_BYTES for each of `requests`.

    The sum exceeds `max_bytes` by at most the chunk whose request is rejected for it. `uploads` are the
    requests whose bodies are still arriving, the oldest first, each with the function that drops it. Of both
    sums, `waiting` requests and `waiting_bytes` are behind an earlier request of their connection.
    """

    def __init__(self, max_bytes: int) -> None:
        self.bytes = self.requests = 0
        self.max_bytes = max_bytes
        self.uploads: dict[InflightShare, Callable[[], None]] = {}
        self.uploading_bytes = 0
        self.waiting = self.waiting_bytes = 0

    def __repr__(self) -> str:
        return f"<Inflight: {self.bytes} of {self.max_bytes} bytes, {self.requests} requests>"

    def is_full(self, more: int = 0) -> bool:
        """Whether there is no room, or not for `more` bytes."""
        # announced bytes do not count: a client that announces and sends nothing occupies nothing
        return self.bytes + self.requests * REQUEST_BYTES + more > self.max_bytes

    def has_room_to_wait(self) -> bool:
        """Whether the requests that wait behind others are within their part of the room."""
        waiting_bytes = self.waiting_bytes + self.waiting * REQUEST_BYTES
        return waiting_bytes <= self.max_bytes // 4 and not self.is_full()

    def add_waiting(self, requests: int, count: int) -> None:
        """Adds requests that wait behind others, and bytes of their bodies; negative numbers remove them."""
        self.requests += requests
        self.waiting += requests
        self.bytes += count
        self.waiting_bytes += count

    def drop_oldest_uploads(self) -> None:
        """Drops uploads, the oldest first, until all together fit into half of the room."""
        while self.uploading_bytes > self.max_bytes // 2:
            share, drop = next(iter(self.uploads.items()))
            share.end_upload()  # now, because its request only notices `drop` later
            drop()


class InflightShare:
    """What one request occupies of an Inflight, from its start until `release`."""

    def __init__(self, inflight: Inflight, max_request_bytes: int) -> None:
        self._inflight = inflight
        self._max_request_bytes = max_request_bytes
        self._bytes = 0
        self._encoded_bytes = 0
        inflight.requests += 1

    def check_announced(self, length: int) -> None:
        """Raises RequestTooLarge if a body of this length would be, Overloaded if there is no room for it."""
        self._check(length)
        if self._inflight.is_full(length):
            raise Overloaded

    def add(self, count: int) -> None:
        """Counts bytes that arrived or were decoded. Raises RequestTooLarge or Overloaded."""
        self._bytes += count
        self._inflight.bytes += count
        if self in self._inflight.uploads:
            self._inflight.uploading_bytes += count
            self._inflight.drop_oldest_uploads()
        # encoded and decoded bytes are both in memory, but the limit is on either of them alone
        self._check(self._bytes - self._encoded_bytes)
        if self._inflight.is_full():
            raise Overloaded

    def begin_upload(self, drop: Callable[[], None]) -> None:
        """Marks the body as still arriving; `drop` must end the wait for the rest of it."""
        self._inflight.uploads[self] = drop
        self._inflight.uploading_bytes += self._bytes
        self._inflight.drop_oldest_uploads()

    def end_upload(self) -> None:
        """Marks the body as complete, or dropped."""
        if self._inflight.uploads.pop(self, None) is not None:
            self._inflight.uploading_bytes -= self._bytes

    def begin_decoding(self) -> None:
        """Marks the bytes counted so far as encoded: the limit applies anew to the decoded ones."""
        self._encoded_bytes = self._bytes

    def end_decoding(self) -> None:
        """Removes the encoded bytes from what is in flight."""
        self._inflight.bytes -= self._encoded_bytes
        self._bytes -= self._encoded_bytes
        self._encoded_bytes = 0

    def release(self) -> None:
        """Removes the request from what is in flight; call it once."""
        if self._inflight.uploads:
            self.end_upload()
        self._inflight.bytes -= self._bytes
        self._inflight.requests -= 1

    def _check(self, length: int) -> None:
        if length > self._max_request_bytes:
            raise RequestTooLarge(f"a request may have at most {self._max_request_bytes} bytes")


def decode_body(chunks: list[bytes], coding: Coding, share: InflightShare) -> list[bytes]:
    """The decoded pieces of the body; empties `chunks`. Raises what `decoded` and InflightShare.add raise."""
    body = b"".join(chunks)
    # the chunks and their copy together would be twice what was counted
    chunks.clear()
    share.begin_decoding()
    pieces: list[bytes] = []
    for piece in decoded(body, coding):
        share.add(len(piece))
        pieces.append(piece)
    share.end_decoding()
    return pieces
