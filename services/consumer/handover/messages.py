"""How a handover looks in HTTP: each message's request line, its envelope, and the compression of its body.

Pure, and the one place where both ends agree: `adapters/http_peers.py` sends, `routes.py` receives. A message
(`core/handover/rules.py`) travels in the signed envelope of its request (`shared/service/signing.py`), and
holds the digest of the uncompressed body; the envelope has that of the body as it is sent.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import cramjam
import msgspec

from services.consumer.core.handover.rules import BundleRequest, Completion, Offer
from shared.errors import BundleRejected
from shared.service.signing import Envelope, digest_of

ZSTD = "zstd"
COMPRESS_FROM_BYTES = 64 * 1024
"""A smaller body is a few packets, compressed or not."""
LEAST_SAVING = 0.1
"""A body that compression shrinks by less is sent as it is: the other side need not decode it."""
_LEVEL = 1
"""The fastest one: compression is to save time."""

Message = Offer | Completion | BundleRequest
M = TypeVar("M", Offer, Completion, BundleRequest)


class Line(NamedTuple):
    """The request line of a message; `target`: path and query."""

    method: str
    target: str


def line_for(message: Message) -> Line:
    """The request line that a message is sent with.

    >>> line_for(BundleRequest(group="default", stream=3, epoch=7, seq=41, member="b", recipient="a")).target
    '/handover/default/3?epoch=7&seq=41'
    """
    path = f"/handover/{message.group}/{message.stream}"
    if isinstance(message, Offer):
        return Line("PUT", f"{path}?epoch={message.epoch}")
    if isinstance(message, Completion):
        return Line("POST", f"{path}/commit?epoch={message.epoch}")
    return Line("GET", f"{path}?epoch={message.epoch}&seq={message.seq}")


def sender_of(message: Message) -> str:
    """The id of the member that sends the message."""
    return message.member if isinstance(message, BundleRequest) else message.donor


def envelope_for(
    message: Message, body: bytes, packed: bytes | None, *, namespace: str, at_ms: int, nonce: str
) -> Envelope:
    """The envelope of a message with this body, which is sent as `packed` (None: as it is)."""
    line, sent = line_for(message), body if packed is None else packed
    # what is sent as it is has the message's digest: hash it once
    digest = digest_of(sent) if packed or isinstance(message, BundleRequest) else message.digest
    return Envelope(
        sender=sender_of(message),
        recipient=message.recipient,
        namespace=namespace,
        group=message.group,
        at_ms=at_ms,
        nonce=nonce,
        method=line.method,
        target=line.target,
        digest=digest,
        length=len(sent),
        encoding="" if packed is None else ZSTD,
        decoded_length=0 if packed is None else len(body),
        message=msgspec.Raw(msgspec.json.encode(message)),
    )


def parse_message(envelope: Envelope, kind: type[M]) -> M:
    """The message in an envelope. Raises BundleRejected if it is not one of this kind, sent as it is here."""
    try:
        message = msgspec.json.decode(envelope.message, type=kind)
    except msgspec.DecodeError as error:
        raise BundleRejected(f"the envelope does not contain a valid {kind.__name__}: {error}") from None
    # earlier versions add the number of the delta's head to the line of a completion
    target = envelope.target.partition("&seq=")[0] if kind is Completion else envelope.target
    signed = Line(envelope.method, target), envelope.sender, envelope.recipient, envelope.group
    if signed != (line_for(message), sender_of(message), message.recipient, message.group):
        raise BundleRejected(f"the envelope does not fit its message: {message!r}")
    return message


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
