"""What gzip and zstd bodies become: the same bytes, in small pieces, and never more than asked for."""

from __future__ import annotations

import gzip
import sys
import tracemalloc
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.producer.core.form import Coding
from services.producer.core.ingest import RequestTooLarge, RequestUnreadable
from services.producer.http.body import decode_body
from services.producer.http.decoding import MAX_PARTS, STEP_BYTES, decoded
from services.producer.http.limits import Inflight, InflightShare, Overloaded

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MIB = 1024 * 1024
CODINGS = [Coding.GZIP, Coding.ZSTD]
PACK: dict[Coding, Callable[[bytes], bytes]] = {Coding.GZIP: gzip.compress, Coding.ZSTD: zstd.compress}


@settings(max_examples=100)
@given(
    parts=st.lists(st.binary(max_size=300) | st.sampled_from([bytes(200_000), b"ab" * 70_000]), max_size=4),
    coding=st.sampled_from(CODINGS),
)
def test_what_was_encoded_comes_out(parts: list[bytes], coding: Coding) -> None:
    """One part or several in a row, in pieces that are never larger than a step."""
    body = b"".join(PACK[coding](part) for part in parts)

    pieces = list(decoded(body, coding))

    assert b"".join(pieces) == b"".join(parts)
    assert max(map(len, pieces), default=0) <= STEP_BYTES


@pytest.mark.parametrize("level", [-50, 1, 19])
def test_every_level_of_zstd_is_read(level: int) -> None:
    """Up to the largest window that the web may use (8 MB), also where the size is not told."""
    text = b"".join(b'{"key":"%d"}' % number for number in range(50_000))
    compressor = zstd.ZstdCompressor(level=level)

    body = compressor.compress(text) + compressor.flush()

    assert b"".join(decoded(body, Coding.ZSTD)) == text


_large = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 25})
LARGE_WINDOW = _large.compress(b"x") + _large.flush()


@pytest.mark.parametrize(
    ("body", "coding"),
    [
        (b"nonsense", Coding.GZIP),
        (b"nonsense", Coding.ZSTD),
        (gzip.compress(b"x")[:-1], Coding.GZIP),
        (gzip.compress(b"x")[:5], Coding.GZIP),
        (zstd.compress(b"x")[:-1], Coding.ZSTD),
        (zstd.compress(b"x")[:3], Coding.ZSTD),
        (gzip.compress(b"x") + b"x", Coding.GZIP),
        (zstd.compress(b"x") + b"x", Coding.ZSTD),
        (gzip.compress(b"x")[:-8] + bytes(8), Coding.GZIP),
        (zlib.compress(b"x"), Coding.GZIP),
        (zstd.compress(b"x"), Coding.GZIP),
        (gzip.compress(b"x"), Coding.ZSTD),
        (LARGE_WINDOW, Coding.ZSTD),
    ],
)
def test_what_is_not_of_its_coding_is_unreadable(body: bytes, coding: Coding) -> None:
    """Garbage, a wrong sum, a body that ends too early or goes on, another coding, too large a window."""
    with pytest.raises(RequestUnreadable):
        list(decoded(body, coding))


@pytest.mark.parametrize("coding", CODINGS)
def test_the_number_of_parts_is_bounded(coding: Coding) -> None:
    """An empty part costs 20 bytes and the making of a decoder."""
    part = PACK[coding](b"")

    assert list(decoded(part * MAX_PARTS, coding)).count(b"") >= MAX_PARTS
    with pytest.raises(RequestTooLarge):
        list(decoded(part * (MAX_PARTS + 1), coding))


_unsized = zstd.ZstdCompressor()
BOMBS = {
    "gzip": (Coding.GZIP, gzip.compress(bytes(20 * MIB))),
    "zstd": (Coding.ZSTD, zstd.compress(bytes(100 * MIB))),
    "zstd that does not tell its size": (
        Coding.ZSTD,
        b"".join([*(_unsized.compress(bytes(MIB)) for _ in range(100)), _unsized.flush()]),
    ),
    "members of gzip": (Coding.GZIP, gzip.compress(bytes(MIB)) * 20),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_is_given_up_at_the_limit(bomb: str) -> None:
    """At most one step beyond a megabyte is ever decoded, counted while it is, and let go again."""
    coding, body = BOMBS[bomb]
    inflight = Inflight(64 * MIB)
    hold = InflightShare(inflight, MIB)
    tracemalloc.start()
    try:
        with pytest.raises(RequestTooLarge):
            decode_body([body], coding, hold)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    counted = inflight.bytes
    hold.release()

    assert MIB < counted <= MIB + STEP_BYTES + len(body)
    assert peak < 2 * MIB + len(body)
    assert inflight.bytes == 0


@pytest.mark.parametrize("coding", CODINGS)
def test_decoded_bytes_are_in_flight_and_encoded_ones_no_more(coding: Coding) -> None:
    """What waits for Kafka is what was decoded."""
    inflight = Inflight(64 * MIB)
    hold = InflightShare(inflight, MIB)
    body = PACK[coding](b"x" * MIB)
    hold.add(len(body))

    pieces = decode_body([body], coding, hold)

    assert sum(map(len, pieces)) == inflight.bytes == MIB


def test_decoding_stops_where_the_room_is_full() -> None:
    """Small bodies that decode to large ones overload the producer like large ones."""
    inflight = Inflight(MIB)
    inflight.bytes = MIB // 2
    hold = InflightShare(inflight, MIB)

    with pytest.raises(Overloaded):
        decode_body([gzip.compress(bytes(MIB))], Coding.GZIP, hold)
    hold.release()

    assert inflight.bytes == MIB // 2
