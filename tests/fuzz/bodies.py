"""Bodies of valid requests, drawn from dice: fragments in every form and encoding that is accepted.

Everything drawn here must be accepted as it is; `mutations.py` mutates it.
"""

from __future__ import annotations

import functools
import gzip
import io
import json
import random
import zlib
from typing import Any

from backports import zstd

JSON, NDJSON, TEXT = b"application/json", b"application/x-ndjson", b"text/plain"
MAX_DECODED_BYTES = 1024 * 1024
"""The default of BATON_MAX_REQUEST_BYTES."""
BOMB_BYTES = 128 * 1024 * 1024
"""Far more than a run may add to its memory."""
_BOMB_PIECE = 1024 * 1024

_LETTERS = (
    "a",
    "ß",
    "漢",
    "😀",
    "é",
    '"',
    "\\",
    "/",
    "\x00",
    "\x1f",
    "\u2028",
    "\x7f",
    " ",
    "\u200d",
    "{",
    "]",
)
_TIMES = (
    *(0, 1, 1_700_000_000_000, 253_402_300_799_999),
    *("1970-01-01T00:00:00Z", "2026-11-21t18:00:00.123456789+14:00", "2016-12-31T23:59:60z"),
    *("9999-12-31T23:59:59.999Z", "2024-02-29 12:00:00-00:00"),
)
_SCALARS = (
    None,
    True,
    False,
    0,
    -1,
    2**70,
    -(2**63),
    0.1,
    -1e-300,
    1.7976931348623157e308,
    "",
    "NaN",
    "\\u0000",
)


def text_of(dice: random.Random, max_bytes: int) -> str:
    """A string of 1 to `max_bytes` bytes of UTF-8."""
    letters = [
        dice.choice(_LETTERS) if dice.random() < 0.2 else chr(dice.randrange(97, 123)) for _ in range(8)
    ]
    text = "".join(letters) * dice.choice((1, 1, 1, 4, 32))
    return text.encode()[:max_bytes].decode(errors="ignore") or "k"


def value_of(dice: random.Random, depth: int = 0) -> Any:
    """Any small JSON value."""
    kind = dice.randrange(5 if depth < 4 else 3)
    if kind < 2:
        return dice.choice(_SCALARS)
    if kind == 2:
        return text_of(dice, 200)
    if kind == 3:
        return [value_of(dice, depth + 1) for _ in range(dice.randrange(4))]
    return {text_of(dice, 20): value_of(dice, depth + 1) for _ in range(dice.randrange(4))}


def fragment_of(dice: random.Random) -> bytes:
    """The JSON text of a valid fragment, on one line, with its members in any order."""
    key = text_of(dice, 256).replace("\x00", "0")  # the one character that a key must not hold
    members: list[tuple[str, Any]] = [("key", key)]
    if dice.random() < 0.5:
        members.append(("id", text_of(dice, 64)))
    if dice.random() < 0.4:
        members.append(("time", dice.choice(_TIMES)))
    if dice.random() < 0.2:
        members.append(("end", dice.random() < 0.5))
    if dice.random() < 0.6:
        members.append(("data", value_of(dice)))
    if dice.random() < 0.1:
        members.append((text_of(dice, 10) + "!", value_of(dice)))
    dice.shuffle(members)
    separators = dice.choice(((",", ":"), (", ", ": "), (" ,\t", " :\r ")))
    return json.dumps(dict(members), ensure_ascii=dice.random() < 0.5, separators=separators).encode()


def body_of(dice: random.Random) -> tuple[bytes, bytes, int]:
    """A body, its type, and its number of fragments."""
    kind = dice.randrange(3)
    space = dice.choice((b"", b"", b" ", b"\r\n\t"))
    if kind == 0:
        body, count, own = space + fragment_of(dice) + space, 1, JSON
    else:
        count = dice.choice((0, 1, 2, 3, 5, 8, 13, 30))
        found = [fragment_of(dice) for _ in range(count)]
        if kind == 1:
            body, own = b"[" + (b"," + space).join(found) + b"]" + space, JSON
        else:
            body, own = dice.choice((b"\n", b"\r\n", b"\n\n")).join(found) + space, NDJSON
    if dice.random() < 0.03:
        body = b"\xef\xbb\xbf" + body
    return body, TEXT if dice.random() < 0.3 and count else own, count


def encoded(body: bytes, encoding: bytes) -> bytes:
    """The body with this content encoding."""
    if encoding == b"gzip":
        return gzip.compress(body, compresslevel=1, mtime=0)
    return bytes(zstd.compress(body)) if encoding == b"zstd" else body


def decoded(wire: bytes, encoding: bytes) -> bytes | None:
    """The body that `wire` encodes; None if it is not encoded so, or is larger than a door accepts."""
    if not encoding:
        return wire
    packed = io.BytesIO(wire)
    try:
        with gzip.GzipFile(fileobj=packed) if encoding == b"gzip" else zstd.ZstdFile(packed) as file:
            body = file.read(MAX_DECODED_BYTES + 1)
    except (OSError, EOFError, ValueError, zlib.error, zstd.ZstdError):
        return None
    return body if len(body) <= MAX_DECODED_BYTES else None


@functools.cache
def bomb(encoding: bytes) -> bytes:
    """A small body that decodes to `BOMB_BYTES` spaces; created without holding them in memory."""
    made = zstd.ZstdCompressor() if encoding == b"zstd" else zlib.compressobj(1, wbits=31)
    pieces = [made.compress(b" " * _BOMB_PIECE) for _ in range(BOMB_BYTES // _BOMB_PIECE)]
    return b"".join([*pieces, made.flush()])
