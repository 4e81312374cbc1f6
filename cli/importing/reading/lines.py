"""Reads a log's lines block by block in bounded memory: plain or packed, a file or standard input.

Reads block, so `sending/pipeline.py` calls `read_block` in a thread. Lines end with `\\n` and are
numbered from 1, as in an editor.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from cli.importing.reading.content import Content, ContentHash
from cli.importing.reading.unpacking import DAMAGE, Utf8, unpacked
from shared.errors import BatonError, InvalidInput

STDIN = "-"
BLOCK_BYTES = 256 * 1024
MAX_LINE_BYTES = 1_000_000
"""A longer line does not fit into a request; it is dropped while it is read, and counted."""


class Line(msgspec.Struct, frozen=True, gc=False):
    """One line without its LF; `raw` is None if it is longer than MAX_LINE_BYTES."""

    number: int
    raw: bytes | None


class LineReader:
    """Reads `source` (unpacked bytes) in blocks; `raw` is the underlying file of `size` bytes.

    `sends_last`: a last line without its end is a line; else it waits until it has one, and `is_waiting`.
    `bytes_read` counts the text's bytes, `position` bytes of the file on disk (0 if its size is unknown),
    `nuls` those that were dropped before lines, and `content` hashes the text.
    """

    def __init__(
        self, source: io.BufferedIOBase, raw: BinaryIO, size: int | None, *, sends_last: bool = True
    ) -> None:
        self._source = source
        self._raw = raw
        self._utf8 = Utf8()
        self._rest = b""
        self._too_long = False
        self._number = 0
        self._has_unended = False
        self._sends_last = sends_last
        self.is_waiting = False
        self.content = ContentHash()
        self.size = size
        self.bytes_read = 0
        self.position = 0
        self.nuls = 0

    @property
    def ended_lines(self) -> int:
        """How many lines were read up to their line end."""
        return self._number - self._has_unended

    @property
    def imported(self) -> Content:
        """What was read so far without a last line that waits."""
        return self.content.content if self._sends_last else self.content.ended

    def read_bytes(self) -> bytes | None:
        """The next text, perhaps none yet, or None at the end. Raises InvalidInput on damaged data."""
        try:
            # `read1` returns what a pipe has now instead of waiting for a full block
            block = self._source.read1(BLOCK_BYTES)
            text = self._utf8.feed(block, is_last=not block)
        except DAMAGE as error:
            raise InvalidInput(f"the log is damaged or truncated: {error}") from None
        except OSError as error:
            if error.errno is None:
                raise InvalidInput(f"the log is damaged: {error}") from None
            raise BatonError(f"the log cannot be read: {error.strerror or error}") from None
        self.content.update(text)
        return text if block or text else None

    def read_block(self) -> list[Line] | None:
        """The next lines (possibly none yet), or None at the end. Raises InvalidInput on damaged data."""
        block = self.read_bytes()
        if block is None:
            return self._last()
        self.position = 0 if self.size is None else self._raw.tell()
        self.bytes_read += len(block)
        *whole, rest = block.split(b"\n")
        lines = []
        if whole:
            whole[0] = self._rest + whole[0]  # it may have started in an earlier block
            lines = [self._line(raw) for raw in whole]
            self._rest = b""
        self._keep(rest)
        return lines

    def _keep(self, rest: bytes) -> None:
        # the rest of a line that was dropped
        if self._too_long:
            return
        # at once: a hole that a truncated log has left may be larger than the memory
        self._rest = self._without_nuls(self._rest + rest)
        if len(self._rest) > MAX_LINE_BYTES:
            self._rest, self._too_long = b"", True

    def _line(self, raw: bytes) -> Line:
        self._number += 1
        if not self._too_long:
            raw = self._without_nuls(raw)
        # a byte order mark would become part of the first column's name
        if self._number == 1:
            raw = raw.removeprefix(codecs.BOM_UTF8)
        dropped = self._too_long or len(raw) > MAX_LINE_BYTES
        self._too_long = False
        return Line(self._number, None if dropped else raw)

    def _without_nuls(self, raw: bytes) -> bytes:
        """The line without NULs in front, which a server writes into a log that was truncated beneath it."""
        if not raw.startswith(b"\0"):
            return raw
        left = raw.lstrip(b"\0")
        self.nuls += len(raw) - len(left)
        return left

    def _last(self) -> list[Line] | None:
        if not self._rest and not self._too_long:
            return None
        # with CR alone at the ends of lines, the log would wait as one line
        self._sends_last |= b"\r" in self._rest[:-1]
        if not self._sends_last:
            self.is_waiting = True
            return None
        last, self._rest = self._rest, b""
        self._has_unended = True
        return [self._line(last)]


@contextlib.contextmanager
def open_lines(file: str, *, ends: bool = False) -> Iterator[LineReader]:
    """A reader of the file, or of standard input for `-`; what is packed is recognized by its first bytes.

    A last line without its end waits in a plain file, to which a server may be writing, unless it `ends`
    here. Raises InvalidInput when the file cannot be opened.
    """
    if file == STDIN:
        source, _ = unpacked(raw := _stdin())
        yield LineReader(source, raw, None)
        return
    try:
        raw = Path(file).open("rb")  # noqa: SIM115  closed by the `with` below
    except OSError as error:
        raise InvalidInput(f"{file}: {error.strerror}") from None
    with raw:
        # the size of a pipe or device is unknown, so the bar pulses
        regular = os.fstat(raw.fileno()).st_size if Path(file).is_file() else None
        source, is_packed = unpacked(raw)
        yield LineReader(source, raw, regular, sends_last=ends or is_packed or regular is None)


def _stdin() -> BinaryIO:
    """Standard input through a file object that nobody else holds.

    A thread that still reads `sys.stdin` at the end of the process holds its lock and crashes the
    interpreter.
    """
    try:
        return open(sys.stdin.fileno(), "rb", closefd=False)
    except io.UnsupportedOperation:  # standard input is not a file (in tests)
        return sys.stdin.buffer
