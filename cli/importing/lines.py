"""Reads a log's lines block by block in bounded memory: plain or gzip, a file or standard input.

Reads block, so `cli/importing/pipeline.py` calls `read_block` in a thread. Lines end with `\\n` (a preceding
`\\r` is dropped) and are numbered from 1, as in an editor.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from cli.importing.content import ContentHash
from shared.errors import BatonError, InvalidInput

STDIN = "-"
BLOCK_BYTES = 256 * 1024
MAX_LINE_BYTES = 1_000_000
"""A longer line does not fit into a request; it is dropped while it is read, and counted."""
_GZIP = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"


class Line(msgspec.Struct, frozen=True, gc=False):
    """One line without its line end; `raw` is None if it is longer than MAX_LINE_BYTES."""

    number: int
    raw: bytes | None


class LineReader:
    """Reads `source` (unpacked bytes) in blocks; `raw` is the underlying file of `size` bytes.

    `bytes_read` counts unpacked bytes, `position` bytes of the file on disk (0 if its size is unknown), and
    `content` hashes the unpacked bytes.
    """

    def __init__(self, source: io.BufferedIOBase, raw: BinaryIO, size: int | None) -> None:
        self._source = source
        self._raw = raw
        self._rest = b""
        self._too_long = False
        self._number = 0
        self._has_unended = False
        self.content = ContentHash()
        self.size = size
        self.bytes_read = 0
        self.position = 0

    @property
    def ended_lines(self) -> int:
        """How many lines were read up to their line end."""
        return self._number - self._has_unended

    def read_bytes(self) -> bytes:
        """The next unpacked bytes, none at the end. Raises InvalidInput on damaged gzip."""
        try:
            # `read1` returns what a pipe has now instead of waiting for a full block
            block = self._source.read1(BLOCK_BYTES)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise InvalidInput(f"the gzip data is damaged or truncated: {error}") from None
        except OSError as error:
            raise BatonError(f"the log cannot be read: {error.strerror or error}") from None
        self.content.update(block)
        return block

    def read_block(self) -> list[Line] | None:
        """The next lines (possibly none yet), or None at the end. Raises InvalidInput on damaged gzip."""
        block = self.read_bytes()
        if not block:
            return self._last()
        self.position = 0 if self.size is None else self._raw.tell()
        # a byte order mark would become part of the first column's name
        if self.bytes_read == 0:
            block = block.removeprefix(_BOM)
        self.bytes_read += len(block)
        *whole, rest = block.split(b"\n")
        if not whole:
            self._keep(rest)
            return []
        whole[0] = self._rest + whole[0]  # it may have started in an earlier block
        lines = [self._line(raw) for raw in whole]
        self._rest = b""
        self._keep(rest)
        return lines

    def _keep(self, rest: bytes) -> None:
        # the rest of a line that was dropped
        if self._too_long:
            return
        self._rest += rest
        if len(self._rest) > MAX_LINE_BYTES:
            self._rest, self._too_long = b"", True

    def _line(self, raw: bytes) -> Line:
        self._number += 1
        dropped = self._too_long or len(raw) > MAX_LINE_BYTES
        self._too_long = False
        return Line(self._number, None if dropped else raw.removesuffix(b"\r"))

    def _last(self) -> list[Line] | None:
        if not self._rest and not self._too_long:
            return None
        last, self._rest = self._rest, b""
        self._has_unended = True
        return [self._line(last)]


@contextlib.contextmanager
def open_lines(file: str) -> Iterator[LineReader]:
    """A reader of the file, or of standard input for `-`; gzip is recognised by its first bytes.

    Raises InvalidInput when the file cannot be opened.
    """
    if file == STDIN:
        yield _reader(_stdin(), None)
        return
    try:
        raw = Path(file).open("rb")  # noqa: SIM115  closed by the `with` below
    except OSError as error:
        raise InvalidInput(f"{file}: {error.strerror}") from None
    with raw:
        # the size of a pipe or device is unknown, so the bar pulses
        regular = os.fstat(raw.fileno()).st_size if Path(file).is_file() else None
        yield _reader(raw, regular)


def _stdin() -> BinaryIO:
    """Standard input through a file object that nobody else holds.

    A thread that still reads `sys.stdin` at the end of the process holds its lock and crashes the
    interpreter.
    """
    try:
        return open(sys.stdin.fileno(), "rb", closefd=False)
    except io.UnsupportedOperation:  # standard input is not a file (in tests)
        return sys.stdin.buffer


def _reader(raw: BinaryIO, size: int | None) -> LineReader:
    buffered = raw if isinstance(raw, io.BufferedReader) else io.BufferedReader(raw)  # type: ignore[type-var]
    # by content: logs are rotated and piped under any name
    if buffered.peek(2)[:2] == _GZIP:
        return LineReader(gzip.GzipFile(fileobj=buffered), raw, size)
    return LineReader(buffered, raw, size)
