"""Requests that cost the producer as much as a small body can: a KB on the wire, up to a MB decoded.

Each kind aims at one place where work could grow faster than the body: explaining refusals, counting nesting,
splitting bodies, starting decoders. `run.py` measures what each costs.
"""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable

from backports import zstd

from tests.fuzz.bodies import JSON, NDJSON

SIZES = (1_000, 10_000, 100_000, 500_000, 1_000_000)
FRAGMENT_BYTES = 32_000
MOST_ITEMS = 2_500

_WRONG = (
    *(b"1", b"{}", b"NaN", b"[1,]", b'{"key":null}', b'{"key":"a","time":"2026-02-30T00:00:00Z"}'),
    *(b'{"key":"\xff"}', rb'{"key":"\ud800"}', b'{"key":"a","end":1}', b'{"key":"a" "b":1}', b'{"key":"a"'),
)
_DENSE = (
    *(b'"]]",[],', b"[],", b"{},", b"[[[[[]]]]],", b'"a",', b'"",', b"0,", rb'"\"]",', b'{"a":[1,"b"]},'),
    *(rb'"\\",', b"[1,2],", b'[["]"]],'),
)
_RUNS = (rb"\n", rb"\\", rb"\u0041", rb"\ud83d\ude00", rb"\"", b"x", b"[", "é".encode())


def attack_of(dice: random.Random) -> tuple[bytes, bytes, bytes, bytes]:
    """A body's bytes on the wire, their encoding, the decoded body, and its type."""
    if dice.random() < 0.2:
        return _parts(dice)
    size = dice.choice(SIZES)
    body, media_type = dice.choice(_KINDS)(dice, size)
    return gzip.compress(body, compresslevel=1, mtime=0), b"gzip", body, media_type


def _parts(dice: random.Random) -> tuple[bytes, bytes, bytes, bytes]:
    """Empty members or frames, which each need a decoder, around the limits of their number."""
    encoding = dice.choice((b"gzip", b"zstd"))
    empty = gzip.compress(b"", mtime=0) if encoding == b"gzip" else bytes(zstd.compress(b""))
    count = dice.choice((1, 199, 200, 999, 1_000, 5_000))
    return empty * count, encoding, b"", NDJSON


def _items(dice: random.Random, items: list[bytes]) -> tuple[bytes, bytes]:
    if dice.random() < 0.5:
        return b"[" + b",".join(items) + b"]" + b"x" * (dice.random() < 0.2), JSON
    return b"\n".join(items), NDJSON


def _wrong_items(dice: random.Random, size: int) -> tuple[bytes, bytes]:
    """As many refusals as a request can have."""
    wrong = dice.choice(_WRONG)
    return _items(dice, [wrong] * min(MOST_ITEMS, size // (len(wrong) + 1)))


def _nested_items(dice: random.Random, size: int) -> tuple[bytes, bytes]:
    """Nesting around the limit, and around where a recursive parser ends; all of it allowed, or none."""
    depth = min(dice.choice((900, 990, 999, 1_000, 1_001, 1_010, 3_000, 6_000)), max(size // 20, 2))
    opening, closing = dice.choice(((b"[", b"]"), (b'{"a":', b"}"), (b"[[],", b"]")))
    nested = opening * depth + b"1" + closing * (depth - (dice.random() < 0.1))
    return _filled(dice, size, b'{"key":"a","data":' + nested + b"}")


def _dense_items(dice: random.Random, size: int) -> tuple[bytes, bytes]:
    """As many brackets and strings as fit, at a depth where each of them could be the one too many."""
    depth = dice.choice((1, 900, 996, 1_001)) if size > FRAGMENT_BYTES else 1
    dense = dice.choice(_DENSE)
    count = (min(size, FRAGMENT_BYTES) - 2 * depth - 30) // len(dense)
    nested = b"[" * depth + dense * count + b"1" + b"]" * depth
    return _filled(dice, size, b'{"key":"a","data":' + nested + b"," * (dice.random() < 0.3) + b"}")


def _broken_array(dice: random.Random, size: int) -> tuple[bytes, bytes]:
    """An array that has to be split although it is not JSON, or is one long string."""
    kind, run = dice.randrange(3), dice.choice((*_RUNS, *_DENSE))
    filling = run * ((size - 20) // len(run))
    return (b'[NaN,["' + filling + b'"]]', b"[NaN,[" + filling + b"1]]", b'["' + filling + b'",}')[kind], JSON


def _blank_lines(dice: random.Random, size: int) -> tuple[bytes, bytes]:
    """Nothing, in as many lines as possible; or one item too many, again and again."""
    blank = dice.choice((b"\n", b"\r\n", b" \n", b"0\n", b"{}\n"))
    return blank * (size // len(blank)), NDJSON


def _filled(dice: random.Random, size: int, item: bytes) -> tuple[bytes, bytes]:
    return _items(dice, [item] * max(min(MOST_ITEMS, size // (len(item) + 1)), 1))


_KINDS: tuple[Callable[[random.Random, int], tuple[bytes, bytes]], ...] = (
    *(_wrong_items, _nested_items, _dense_items, _broken_array, _blank_lines),
)
