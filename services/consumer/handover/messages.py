"""How a handover looks on the wire: the request of each message, its header, and its body's compression.

Pure, and the one place where both ends agree: `adapters/http_peers.py` sends, `routes.py` receives. A message
(`core/handover/rules.py`) travels as base64url of its JSON in the header `Baton-Handover`, and its digest is
signed (`shared/service/signing.py`); it holds the digest of the body, which is that of the uncompressed one.
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
"""The length of the decoded body, where it is encoded: so much is made room for, and no more."""
ZSTD = "zstd"
COMPRESS_FROM_BYTES = 64 * 1024
"""Below it a body is a few packets, whatever is done to it."""
LEAST_SAVING = 0.1
"""What saves less is sent as it is: the other side need not decode it."""
MAX_MESSAGE_BYTES = 8 * 1024
"""Some hundred bytes are usual; servers take headers of 8 KB and more."""
_LEVEL = 1
"""The fastest: it is time that is to be saved."""
_MAX_DIGITS = 18

Message = Offer | Completion | BundleRequest
M = TypeVar("M", Offer, Completion, BundleRequest)


class Line(NamedTuple):
    """The request line of a message, and what of it is signed."""

    method: str
    path: str
    epoch: int
    seq: int
    query: str

    @property
    def target(self) -> str:
        """Path and query."""
        return f"{self.path}?{self.query}"


def line_for(said: Message) -> Line:
    """Where a message goes.

    >>> line_for(BundleRequest(group="default", stream=3, epoch=7, seq=41, member="m1")).target
    '/handover/default/3?epoch=7&seq=41'
    """
    path = f"/handover/{said.group}/{said.stream}"
    if isinstance(said, Offer):
        return Line("PUT", path, said.epoch, 0, f"epoch={said.epoch}")
    query = f"epoch={said.epoch}&seq={said.seq}"
    if isinstance(said, Completion):
        return Line("POST", f"{path}/commit", said.epoch, said.seq, query)
    return Line("GET", path, said.epoch, said.seq, query)


def sender_of(said: Message) -> str:
    """The id of the member who says so."""
    return said.member if isinstance(said, BundleRequest) else said.donor


def header_for(said: Message) -> str:
    """The message as a header's value."""
    return base64.urlsafe_b64encode(msgspec.json.encode(said)).decode()


def parse_header(value: str, kind: type[M]) -> M:
    """The message of a header's value. Raises BundleRejected when it is none of this kind."""
    if len(value) > MAX_MESSAGE_BYTES:
        raise BundleRejected(f"the header {HANDOVER} is longer than {MAX_MESSAGE_BYTES} bytes")
    try:
        return msgspec.json.decode(base64.b64decode(value, b"-_", validate=True), type=kind)
    except (binascii.Error, ValueError, msgspec.DecodeError) as error:
        raise BundleRejected(f"the header {HANDOVER} holds no {kind.__name__}: {error}") from None


def parse_length(raw: str) -> int:
    """The number of bytes that a header names. Raises BundleRejected when it names none."""
    if not (raw.isascii() and raw.isdigit() and len(raw) <= _MAX_DIGITS):
        raise BundleRejected(f"{raw[:_MAX_DIGITS]!r} is no length")
    return int(raw)


def compress(body: bytes) -> bytes | None:
    """The body as one zstd frame; None where that does not pay. About 3 ms a megabyte."""
    if len(body) <= COMPRESS_FROM_BYTES:
        return None
    packed = bytes(cramjam.zstd.compress(body, _LEVEL))
    return packed if len(packed) <= len(body) * (1 - LEAST_SAVING) else None


def decompress(packed: bytes, length: int) -> bytes:
    """The `length` bytes that were compressed; never takes room for more. About 2 ms a megabyte.

    Raises BundleRejected when they are more or less, or no zstd.
    """
    room = bytearray(length)
    try:
        filled = cramjam.zstd.decompress_into(packed, room)
    except cramjam.DecompressionError as error:
        raise BundleRejected(f"the body is no zstd of {length} bytes: {error}") from None
    if filled != length:
        raise BundleRejected(f"the body is {filled} bytes of zstd, not {length}")
    return bytes(room)
