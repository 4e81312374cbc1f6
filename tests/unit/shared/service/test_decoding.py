"""Decoding gzip and zstd: the same bytes come out, in small pieces, and never more than the limit."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.model.form import Coding
from shared.model.items import RequestTooLarge, RequestUnreadable
from shared.service.decoding import MAX_PARTS, STEP_BYTES, decoded
from shared.service.inflight import Inflight, InflightShare, Overloaded, decode_body
from tests.unit.producer.face import zstd

MIB = 1024 * 1024
CODINGS = [Coding.GZIP, Coding.ZSTD]
PACK: dict[Coding, Callable[[bytes], bytes]] = {Coding.GZIP: gzip.compress, Coding.ZSTD: zstd.compress}


@settings(max_examples=100)
@given(
    parts=st.lists(st.binary(max_size=300) | st.sampled_from([bytes(200_000), b"ab" * 70_000]), max_size=4),
    coding=st.sampled_from(CODINGS),
)
def test_a_body_is_decoded_in_small_pieces(parts: list[bytes], coding: Coding) -> None:
    """One part or several in a row; no piece is larger than a step."""
    body = b"".join(PACK[coding](part) for part in parts)

    pieces = list(decoded(body, coding))

    assert b"".join(pieces) == b"".join(parts)
    assert max(map(len, pieces), default=0) <= STEP_BYTES


@pytest.mark.parametrize("level", [-50, 1, 19])
def test_every_level_of_zstd_is_decoded(level: int) -> None:
    """Up to the largest window allowed on the web (8 MB), also in a frame without its size."""
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
        (gzip.compress(b"x", mtime=0)[:-1], Coding.GZIP),
        (zstd.compress(b"x")[:-1], Coding.ZSTD),
        (gzip.compress(b"x", mtime=0) + b"x", Coding.GZIP),
        (zstd.compress(b"x") + b"x", Coding.ZSTD),
        (gzip.compress(b"x", mtime=0)[:-8] + bytes(8), Coding.GZIP),
        (zlib.compress(b"x"), Coding.GZIP),
        (zstd.compress(b"x"), Coding.GZIP),
        (gzip.compress(b"x", mtime=0), Coding.ZSTD),
        (LARGE_WINDOW, Coding.ZSTD),
    ],
)
def test_a_body_in_another_encoding_is_unreadable(body: bytes, coding: Coding) -> None:
    """Garbage, a wrong checksum, a body that is too short or too long, another coding, too large a window."""
    with pytest.raises(RequestUnreadable):
        list(decoded(body, coding))


@pytest.mark.parametrize("coding", CODINGS)
def test_the_number_of_parts_is_bounded(coding: Coding) -> None:
    """An empty part costs the client 20 bytes and us a decoder."""
    part, most = PACK[coding](b""), MAX_PARTS[coding]

    assert list(decoded(part * most, coding)).count(b"") >= most
    with pytest.raises(RequestTooLarge):
        list(decoded(part * (most + 1), coding))


_unsized = zstd.ZstdCompressor()
BOMBS = {
    "gzip": (Coding.GZIP, gzip.compress(bytes(20 * MIB))),
    "zstd": (Coding.ZSTD, zstd.compress(bytes(100 * MIB))),
    "zstd without its size": (
        Coding.ZSTD,
        b"".join([*(_unsized.compress(bytes(MIB)) for _ in range(100)), _unsized.flush()]),
    ),
    "members of gzip": (Coding.GZIP, gzip.compress(bytes(MIB)) * 20),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_is_rejected_at_the_limit(bomb: str) -> None:
    """At most one step beyond a megabyte is decoded; it is counted meanwhile, and released again."""
    coding, body = BOMBS[bomb]
    inflight = Inflight(64 * MIB)
    share = InflightShare(inflight, MIB)
    tracemalloc.start()
    try:
        with pytest.raises(RequestTooLarge):
            decode_body([body], coding, share)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    counted = inflight.bytes
    share.release()

    assert MIB < counted <= MIB + STEP_BYTES + len(body)
    assert peak < 2 * MIB + len(body)
    assert inflight.bytes == 0


@pytest.mark.parametrize("coding", CODINGS)
def test_after_decoding_only_the_decoded_bytes_are_in_flight(coding: Coding) -> None:
    """They wait for Kafka; the encoded ones are released."""
    inflight = Inflight(64 * MIB)
    share = InflightShare(inflight, MIB)
    body = PACK[coding](b"x" * MIB)
    share.add(len(body))

    pieces = decode_body([body], coding, share)

    assert sum(map(len, pieces)) == inflight.bytes == MIB


def test_decoding_stops_when_there_is_no_room() -> None:
    """Small bodies that decode to large ones overload the producer just as large ones do."""
    inflight = Inflight(MIB)
    inflight.bytes = MIB // 2
    share = InflightShare(inflight, MIB)

    with pytest.raises(Overloaded):
        decode_body([gzip.compress(bytes(MIB))], Coding.GZIP, share)
    share.release()

    assert inflight.bytes == MIB // 2
