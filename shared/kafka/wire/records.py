"""Encodes record batches (Kafka's format v2) that are complete, where aiokafka's builder appends to a buffer.

The builder moves its buffer again and again as many of them grow side by side, and computes the checksum in
software: 0.9 µs a record of 1 KB in batches of 66. One `join` and the processor's instruction for CRC-32C
(google-crc32c) take 0.5 µs. The bytes are the same (a test compares them). Used by `send/outgoing.py`
and transactional.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final

from aiokafka.codec import gzip_encode, lz4_encode, snappy_encode, zstd_encode
from google_crc32c import value as crc32c

from shared.kafka.record import Headers

Timed = tuple[int, bytes | None, bytes | None, Headers]
"""Timestamp in ms, key, value and headers."""
Producer = tuple[int, int]
"""Id and epoch under which a broker counts what it got."""
Encoded = tuple[bytes, bytes]
"""A batch: up to the checksum, and what that covers. Apart, since joining them would copy it all."""
CODECS: Final[dict[str, tuple[int, Callable[[bytes], bytes]]]] = {
    "none": (0, bytes),
    "gzip": (1, gzip_encode),
    "snappy": (2, snappy_encode),
    "lz4": (3, lz4_encode),
    "zstd": (4, zstd_encode),
}
"""Name → number in the attributes, and function."""
BATCH_OVERHEAD: Final = 61
RECORD_OVERHEAD: Final = 40
"""At most: seven varints of up to 5 bytes, one byte, and a few to spare."""

_BEFORE: Final = Struct(">qiibI")
"""First offset, length of the rest, leader epoch, magic, checksum."""
_HEAD: Final = Struct(">hiqqqhii")
"""Attributes, last offset delta, first and greatest timestamp; producer's id, epoch, sequence; count."""
_TRANSACTIONAL: Final = 0x10
_SIGNED: Final = Struct(">qhi")
_SIGNED_AT: Final = 22
"""Where the producer's id, epoch and sequence number are in what the checksum covers."""
_UNCOUNTED: Final = 12
"""A batch's length does not count its first offset and itself."""
_KEPT: Final = 16_384


class _Varints(dict[int, bytes]):
    """Integer → zigzag varint, computed when first used; those of usual lengths are kept."""

    def __missing__(self, number: int) -> bytes:
        rest, written = number << 1 ^ number >> 63, bytearray()
        while rest > 0x7F:
            written.append(rest & 0x7F | 0x80)
            rest >>= 7
        written.append(rest)
        found = bytes(written)
        if 0 <= number < _KEPT:
            self[number] = found
        return found


_varints: Final = _Varints()


def size_of(headers: Headers) -> int:
    """The bytes of a record's headers, at most."""
    return sum(10 + 4 * len(name) + len(value) for name, value in headers)


def encode_batch(
    records: Sequence[Timed],
    producer: Producer,
    sequence: int,
    codec: str = "none",
    *,
    is_transactional: bool = False,
) -> Encoded:
    """The batch of these records (at least one); compressed, if that makes it smaller."""
    varints, pieces = _varints, [b""]
    first_ms = last_ms = records[0][0]
    for number, (time_ms, key, value, headers) in enumerate(records):
        if time_ms > last_ms:
            last_ms = time_ms
        if key is None or value is None or headers:
            body = _body(time_ms - first_ms, number, key, value, headers)
            pieces += (varints[len(body)], body)
            continue
        # the usual record without a copy of its own, which would cost as much as the rest
        key_size, value_size = len(key), len(value)
        after, offset = varints[time_ms - first_ms], varints[number]
        before_key, before_value = varints[key_size], varints[value_size]
        lengths = len(after) + len(offset) + len(before_key) + len(before_value)
        size = varints[lengths + key_size + value_size + 2]
        pieces += (size, b"\0", after, offset, before_key, key, before_value, value, b"\0")
    attributes = 0
    if codec != "none":
        attributes, pieces = _compressed(b"".join(pieces), codec)
    if is_transactional:
        attributes |= _TRANSACTIONAL
    producer_id, epoch = producer
    pieces[0] = _HEAD.pack(attributes, number, first_ms, last_ms, producer_id, epoch, sequence, number + 1)
    return _checked(b"".join(pieces))


def sign_again(batch: Encoded, producer: Producer, sequence: int) -> Encoded:
    """The same batch from another producer, or with another sequence number."""
    covered = batch[1]
    signed = _SIGNED.pack(*producer, sequence)
    return _checked(covered[:_SIGNED_AT] + signed + covered[_SIGNED_AT + _SIGNED.size :])


def _checked(covered: bytes) -> Encoded:
    size = _BEFORE.size - _UNCOUNTED + len(covered)
    return _BEFORE.pack(0, size, -1, 2, crc32c(covered)), covered


def _compressed(plain: bytes, codec: str) -> tuple[int, list[bytes]]:
    """The attributes that say so, and the records, behind room for what comes before them."""
    number, compress = CODECS[codec]
    compressed = compress(plain)
    return (number, [b"", compressed]) if len(compressed) < len(plain) else (0, [b"", plain])


def _body(after_ms: int, number: int, key: bytes | None, value: bytes | None, headers: Headers) -> bytes:
    """A record without its length."""
    pieces = [
        b"\0",
        _varints[after_ms],
        _varints[number],
        *_sized(key),
        *_sized(value),
        _varints[len(headers)],
    ]
    for name, content in headers:
        pieces += (*_sized(name.encode()), *_sized(content))
    return b"".join(pieces)


def _sized(content: bytes | None) -> tuple[bytes, bytes]:
    return (_varints[-1], b"") if content is None else (_varints[len(content)], content)
