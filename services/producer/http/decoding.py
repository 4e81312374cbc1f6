"""gzip and zstd, decoded piece by piece, so that whoever asks may stop at any bound.

Of several members (gzip) or frames (zstd) in a row all are decoded, as both formats want. Used by
`body.py` once a body is there: a decoder holds up to 8 MB, which a slow sender shall not take.
docs/adr/0018 says why these libraries.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterator
from typing import Protocol

from services.producer.core.form import Coding
from services.producer.core.ingest import RequestTooLarge, RequestUnreadable

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

STEP_BYTES = 64 * 1024
"""Most that one step yields."""
FEED_BYTES = 16 * 1024
"""Most that a decoder is given at once: what it leaves at the end of a member is copied."""
MAX_PARTS = 1_000
"""Members or frames of a body. Making a decoder takes 3 µs (gzip) to 30 µs (zstd), an empty part 20 bytes."""
_ZSTD_WINDOW_LOG = 23
"""8 MB, which RFC 9659 sets for zstd on the web; frames that ask for more are refused."""


class _Decoder(Protocol):
    """Decodes one member or frame; the interface of the standard library's decompressors."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    @property
    def needs_input(self) -> bool: ...

    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _Gzip:
    """`zlib`, which gives back the input that it had no room to decode, as one that keeps it."""

    def __init__(self) -> None:
        self._zlib = zlib.decompressobj(wbits=31)
        self.needs_input = True

    @property
    def eof(self) -> bool:
        return self._zlib.eof

    @property
    def unused_data(self) -> bytes:
        return self._zlib.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        piece = self._zlib.decompress(data or self._zlib.unconsumed_tail, max_length)
        self.needs_input = not self._zlib.unconsumed_tail
        return piece


def _zstd() -> _Decoder:
    decoder: _Decoder = zstd.ZstdDecompressor(
        options={zstd.DecompressionParameter.window_log_max: _ZSTD_WINDOW_LOG}
    )
    return decoder


_DECODERS: dict[Coding, Callable[[], _Decoder]] = {Coding.GZIP: _Gzip, Coding.ZSTD: _zstd}


def decoded(body: bytes, coding: Coding) -> Iterator[bytes]:
    """What the body holds, in pieces of at most STEP_BYTES.

    Raises RequestUnreadable where the body is not of that coding, or ends too early, RequestTooLarge
    for more than MAX_PARTS members or frames.
    """
    decoder: _Decoder | None = None
    parts = 0
    try:
        for start in range(0, len(body), FEED_BYTES):
            data = body[start : start + FEED_BYTES]
            while data:
                if decoder is None:
                    decoder, parts = _DECODERS[coding](), parts + 1
                    if parts > MAX_PARTS:
                        raise RequestTooLarge(f"a {coding.value} body may have at most {MAX_PARTS} parts")
                yield decoder.decompress(data, STEP_BYTES)
                while not (decoder.eof or decoder.needs_input):
                    yield decoder.decompress(b"", STEP_BYTES)
                data = decoder.unused_data if decoder.eof else b""
                if decoder.eof:
                    decoder = None
    except (zlib.error, zstd.ZstdError) as error:
        raise RequestUnreadable(f"the body is not {coding.value}, as its encoding says: {error}") from None
    if decoder is not None:
        raise RequestUnreadable(f"the {coding.value} body ends too early")
