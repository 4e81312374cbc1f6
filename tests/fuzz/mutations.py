"""Mutates requests: bytes flipped, cut, repeated, inserted; headers that lie, repeat, or are missing.

Every function draws from the given dice, so a seed always gives the same mutations.
"""

from __future__ import annotations

import random
from collections.abc import Callable

Header = tuple[bytes, bytes]

TOKENS = (
    *(b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-0", b"0x1", b"01", b"1.", b"9" * 400, b"9" * 5_000),
    *(b"null", b"true", b"[]", b"{}", b"[", b"]", b"{", b"}", b",", b":", b'"', b"\\", b"\\u", b"\\ud800"),
    *(b"\\udc00\\ud800", b'"\\ud83d"', b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\x00"),
    *(b"\n", b"\r", b"\t", b"\x0b", b"\xef\xbb\xbf", b"\xc2\xa0", b"\xe2\x80\xa8", b"/*", b"//", b"'"),
    *(
        b'"key":1,',
        b'"key":null,',
        b'"key":"",',
        b'"time":-1,',
        b'"time":1e3,',
        b'"time":"2023-02-30T00:00:00Z",',
    ),
    *(
        b'"id":"' + b"i" * 65 + b'",',
        b'"end":1,',
        b'"key":"' + b"k" * 257 + b'",',
        b'{"key":"z"}',
        b'"data":',
    ),
)
MAX_BYTES = 2 * 1024 * 1024
"""Twice the limit of a request: a longer one tests nothing more, and would itself be the peak of memory."""
DEPTHS = (5, 900, 999, 1_000, 1_001, 5_000, 100_000)
TYPES = (
    *(
        b"",
        b"application/json",
        b"APPLICATION/JSON",
        b"application/json;charset=utf-8",
        b"text/plain;charset=UTF-8",
    ),
    *(
        b'application/json; charset="utf-8"',
        b"application/json; charset=utf-16",
        b"application/x-ndjson ;x=y;;",
    ),
    *(
        b"text/plain",
        b"text/html",
        b"application/*",
        b"multipart/form-data; boundary=x",
        b"\xff\xfe",
        b";",
        b"json",
    ),
    *(b"application/json, application/json", b"application/x-www-form-urlencoded", b"a" * 9_000),
)
ENCODINGS = (
    *(b"", b"identity", b"gzip", b"GZIP", b"x-gzip", b"zstd", b"br", b"deflate", b"gzip, gzip", b"gzip,zstd"),
    *(b"identity, gzip", b"\xff", b"gzip;q=1", b","),
)
LENGTHS = (b"0", b"-1", b"7", b"99999999999999999999", b"1e3", b" 5 ", b"\xb2", b"", b"1048577", b"0x10")
OTHERS: tuple[Header, ...] = (
    (b"authorization", b"Bearer nobody"),
    (b"authorization", b"Bearer \xff\xfe"),
    (b"authorization", b"Basic Og=="),
    (b"authorization", b""),
    (b"x-write-key", b"\xc3\x28"),
    (b"origin", b"null"),
    (b"origin", b"https://\xff.example"),
    (b"origin", b"https://example.com"),
    (b"expect", b"100-continue"),
    (b"transfer-encoding", b"chunked"),
    (b"accept", b"text/html;q=\xff"),
    (b"connection", b"close"),
    (b"host", b"\x80"),
    (b"cookie", b"a" * 5_000),
)


def mutated_body(dice: random.Random, body: bytes) -> bytes:
    """The body after one to four mutations."""
    for _ in range(dice.choice((1, 1, 1, 2, 4))):
        body = dice.choice(_MUTATIONS)(dice, body)[:MAX_BYTES]
    return body


def mutated_headers(dice: random.Random, headers: list[Header]) -> list[Header]:
    """The headers with one of them missing, wrong, or in excess."""
    headers = list(headers)
    kind = dice.randrange(6)
    if kind == 0 and headers:
        del headers[dice.randrange(len(headers))]
    elif kind == 1:
        headers.append((b"content-type", dice.choice(TYPES)))
    elif kind == 2:
        headers = [header for header in headers if header[0] != b"content-type"]
        headers.append((b"content-type", dice.choice(TYPES)))
    elif kind == 3:
        headers.append((b"content-encoding", dice.choice(ENCODINGS)))
    elif kind == 4:
        headers.append((b"content-length", dice.choice(LENGTHS)))
    else:
        headers.append(dice.choice(OTHERS))
    dice.shuffle(headers)
    return headers


def _place(dice: random.Random, body: bytes) -> int:
    return dice.randrange(len(body) + 1)


def _slice(dice: random.Random, body: bytes) -> tuple[int, int]:
    first = _place(dice, body)
    return first, min(len(body), first + dice.choice((1, 1, 2, 8, 64)))


def _flip(dice: random.Random, body: bytes) -> bytes:
    at = _place(dice, body)
    return body[:at] + bytes(byte ^ (1 << dice.randrange(8)) for byte in body[at : at + 1]) + body[at + 1 :]


def _replace(dice: random.Random, body: bytes) -> bytes:
    first, end = _slice(dice, body)
    return body[:first] + dice.randbytes(end - first) + body[end:]


def _delete(dice: random.Random, body: bytes) -> bytes:
    first, end = _slice(dice, body)
    return body[:first] + body[end:]


def _repeat(dice: random.Random, body: bytes) -> bytes:
    first, end = _slice(dice, body)
    part, times = body[first:end], dice.choice((1, 2, 50))
    return body[:end] + part * _at_most(times, part) + body[end:]


def _cut(dice: random.Random, body: bytes) -> bytes:
    return body[: _place(dice, body)]


def _insert(dice: random.Random, body: bytes) -> bytes:
    at = _place(dice, body)
    return body[:at] + dice.choice(TOKENS) + body[at:]


def _insert_before_value(dice: random.Random, body: bytes) -> bytes:
    """Inserts a token where a value begins, which is where a parser decides."""
    at = body.find(b":", _place(dice, body)) + 1
    return body[:at] + dice.choice(TOKENS) + (b"," if dice.random() < 0.3 else b"") + body[at:]


def _nest(dice: random.Random, body: bytes) -> bytes:
    """Inserts deep nesting where a value is; sometimes one bracket is not closed."""
    at = body.find(b":", _place(dice, body)) + 1
    depth = dice.choice(DEPTHS) if dice.random() < 0.2 else dice.randrange(1, 60)
    opening, closing = (b"[", b"]") if dice.random() < 0.5 else (b'{"a":', b"}")
    nested = opening * depth + b"1" + closing * (depth - (dice.random() < 0.2))
    return body[:at] + nested + b"," + body[at:]


def _multiply(dice: random.Random, body: bytes) -> bytes:
    """Repeats the whole body, up to beyond every limit."""
    times = dice.choice((2, 3, 20)) if dice.random() < 0.97 else 2_600
    return dice.choice((b"", b"\n", b",")).join([body] * _at_most(times, body))


def _at_most(times: int, part: bytes) -> int:
    """How often to repeat the part: what is beyond MAX_BYTES would be cut off anyway."""
    return min(times, MAX_BYTES // (len(part) + 1) + 1)


_MUTATIONS: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    *(_flip, _replace, _delete, _repeat, _cut, _insert, _insert, _insert_before_value, _insert_before_value),
    *(_nest, _multiply),
)
