"""Decodes gzip and zstd piece by piece, so that the caller can stop at any limit.

All members (gzip) or frames (zstd) of a body are decoded, as both formats require. Used by `inflight.py` once
a body is complete: a decoder holds up to 8 MB, which a slow sender must not occupy. docs/adr/0018 explains
the choice of libraries.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterator

from shared.model.form import Coding
from shared.model.items import RequestTooLarge, RequestUnreadable

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

STEP_BYTES = 64 * 1024
"""The most that one step yields."""
FEED_BYTES = 16 * 1024
"""The most that a decoder gets at once: what remains after the end of a member is copied."""
MAX_PARTS = {Coding.GZIP: 1_000, Coding.ZSTD: 200}
"""Members or frames of a body. Even an empty one needs a decoder: 1 µs (gzip), 20 to 30 µs (zstd)."""
_ZSTD_WINDOW_LOG = 23
"""8 MB, the limit of RFC 9659 for zstd on the web; frames that need more are rejected."""


class _Gzip:
    """Adapts `zlib`, which returns the input that did not fit, to a decoder that keeps it."""

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


def _zstd() -> zstd.ZstdDecompressor:
    return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: _ZSTD_WINDOW_LOG})


_Decoder = _Gzip | zstd.ZstdDecompressor
"""Decodes one member or frame, with the interface of the standard library's decompressors."""
_DECODERS: dict[Coding, Callable[[], _Decoder]] = {Coding.GZIP: _Gzip, Coding.ZSTD: _zstd}


def decoded(body: bytes, coding: Coding) -> Iterator[bytes]:
    """The decoded body, in pieces of at most STEP_BYTES.

    Raises RequestUnreadable if the body is not encoded so, or ends too early; RequestTooLarge if it has more
    than MAX_PARTS members or frames.
    """
    decoder: _Decoder | None = None
    parts, most = 0, MAX_PARTS[coding]
    try:
        for start in range(0, len(body), FEED_BYTES):
            data = body[start : start + FEED_BYTES]
            while data:
                if decoder is None:
                    decoder, parts = _DECODERS[coding](), parts + 1
                    if parts > most:
                        raise RequestTooLarge(f"a {coding.value} body may have at most {most} parts")
                yield decoder.decompress(data, STEP_BYTES)
                # more output waits in the decoder: drain it before it gets more input
                while not (decoder.eof or decoder.needs_input):
                    yield decoder.decompress(b"", STEP_BYTES)
                # bytes after the end of a part belong to the next one
                data = decoder.unused_data if decoder.eof else b""
                if decoder.eof:
                    decoder = None
    except (zlib.error, zstd.ZstdError) as error:
        raise RequestUnreadable(f"the body is not {coding.value}, as its encoding says: {error}") from None
    if decoder is not None:
        raise RequestUnreadable(f"the {coding.value} body ends too early")
