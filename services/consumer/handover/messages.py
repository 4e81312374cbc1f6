"""How a handover looks in HTTP: each message's request line, its header, and the compression of its body.

Pure, and the one place where both ends agree: `adapters/http_peers.py` sends, `routes.py` receives. A message
(`core/handover/rules.py`) is base64url of its JSON in the header `Baton-Handover`. The header's digest is
signed (`shared/service/signing.py`), and the message holds the digest of the uncompressed body.
"""

from __future__ import annotations

import base64
import binascii
from typing import NamedTuple, TypeVar

import cramjam
import msgspec

from services.consumer.core.handover.rules import BundleRequest, Completion, Offer
from shared.errors import BundleRejected

HANDOVER = "Baton-Handover"
LENGTH = "Baton-Length"
"""The length of the decoded body, where it is encoded: the reader allocates exactly this much."""
ZSTD = "zstd"
COMPRESS_FROM_BYTES = 64 * 1024
"""A smaller body is a few packets, compressed or not."""
LEAST_SAVING = 0.1
"""A body that compression shrinks by less is sent as it is: the other side need not decode it."""
MAX_MESSAGE_BYTES = 8 * 1024
"""A few hundred bytes are usual; servers accept headers of 8 KB and more."""
_LEVEL = 1
"""The fastest one: compression is to save time."""
_MAX_DIGITS = 18

Message = Offer | Completion | BundleRequest
M = TypeVar("M", Offer, Completion, BundleRequest)


class Line(NamedTuple):
    """The request line of a message, and those parts of it that are signed."""

    method: str
    path: str
    epoch: int
    seq: int
    query: str

    @property
    def target(self) -> str:
        """Path and query."""
        return f"{self.path}?{self.query}"


def line_for(message: Message) -> Line:
    """The request line that a message is sent with.

    >>> line_for(BundleRequest(group="default", stream=3, epoch=7, seq=41, member="m1")).target
    '/handover/default/3?epoch=7&seq=41'
    """
    path = f"/handover/{message.group}/{message.stream}"
    if isinstance(message, Offer):
        return Line("PUT", path, message.epoch, 0, f"epoch={message.epoch}")
    query = f"epoch={message.epoch}&seq={message.seq}"
    if isinstance(message, Completion):
        return Line("POST", f"{path}/commit", message.epoch, message.seq, query)
    return Line("GET", path, message.epoch, message.seq, query)


def sender_of(message: Message) -> str:
    """The id of the member that sends the message."""
    return message.member if isinstance(message, BundleRequest) else message.donor


def header_for(message: Message) -> str:
    """The message as a header's value."""
    return base64.urlsafe_b64encode(msgspec.json.encode(message)).decode()


def parse_header(value: str, kind: type[M]) -> M:
    """The message of a header's value. Raises BundleRejected if it is not one of this kind."""
    if len(value) > MAX_MESSAGE_BYTES:
        raise BundleRejected(f"the header {HANDOVER} is longer than {MAX_MESSAGE_BYTES} bytes")
    try:
        return msgspec.json.decode(base64.b64decode(value, b"-_", validate=True), type=kind)
    except (binascii.Error, ValueError, msgspec.DecodeError) as error:
        raise BundleRejected(f"the header {HANDOVER} is not a valid {kind.__name__}: {error}") from None


def parse_length(raw: str) -> int:
    """The number of bytes that a header states. Raises BundleRejected if it does not."""
    if not (raw.isascii() and raw.isdigit() and len(raw) <= _MAX_DIGITS):
        raise BundleRejected(f"{raw[:_MAX_DIGITS]!r} is not a length")
    return int(raw)


def compress(body: bytes) -> bytes | None:
    """The body as one zstd frame; None where that does not pay. About 3 ms per megabyte."""
    if len(body) <= COMPRESS_FROM_BYTES:
        return None
    packed = bytes(cramjam.zstd.compress(body, _LEVEL))
    return packed if len(packed) <= len(body) * (1 - LEAST_SAVING) else None


def decompress(packed: bytes, length: int) -> bytes:
    """The `length` bytes that were compressed; never allocates more. About 2 ms per megabyte.

    Raises BundleRejected if the body is not zstd of exactly this length.
    """
    room = bytearray(length)
    try:
        filled = cramjam.zstd.decompress_into(packed, room)
    except cramjam.DecompressionError as error:
        raise BundleRejected(f"the body is not zstd of {length} bytes: {error}") from None
    if filled != length:
        raise BundleRejected(f"the body is {filled} bytes of zstd, not {length}")
    return bytes(room)
