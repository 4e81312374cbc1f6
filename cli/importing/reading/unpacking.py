"""Recognizes what a log is packed with by its first bytes: gzip, bzip2, xz or zstd; and text in UTF-16.

Not by the name: logs are rotated and piped under any. Used by `reading/lines.py`.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import sys
import zlib
from collections.abc import Callable
from typing import Any, BinaryIO

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

PACKED: dict[bytes, Callable[[Any], Any]] = {
    b"\x1f\x8b": lambda raw: gzip.GzipFile(fileobj=raw),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\0": lzma.LZMAFile,
    b"\x28\xb5\x2f\xfd": zstd.ZstdFile,
}
DAMAGE = (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError, zstd.ZstdError, UnicodeDecodeError)
"""What reading damaged or truncated data raises; bzip2 raises an OSError without a number."""
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def unpacked(raw: BinaryIO) -> tuple[io.BufferedIOBase, bool]:
    """A source of the unpacked bytes, and whether they were packed."""
    buffered = raw if isinstance(raw, io.BufferedReader) else io.BufferedReader(raw)  # type: ignore[type-var]
    head = buffered.peek(6)
    for magic, unpack in PACKED.items():
        if head.startswith(magic):
            return unpack(buffered), True
    return buffered, False


class Utf8:
    """Text in UTF-8, whether it arrives as UTF-8 or as UTF-16 with a byte order mark."""

    def __init__(self) -> None:
        self._head = b""
        self._decoder: codecs.IncrementalDecoder | None = None
        self._has_begun = False

    def feed(self, block: bytes, *, is_last: bool = False) -> bytes:
        """The next text; at first it waits for enough to recognize the mark. Raises UnicodeDecodeError."""
        if not self._has_begun:
            block, self._head = self._head + block, b""
            if len(block) < len(_UTF16[0]) and not is_last:
                self._head = block
                return b""
            self._has_begun = True
            if block.startswith(_UTF16):
                self._decoder = codecs.getincrementaldecoder("utf-16")()
        # a lone half of a character becomes `?`
        return self._decoder.decode(block, is_last).encode(errors="replace") if self._decoder else block
