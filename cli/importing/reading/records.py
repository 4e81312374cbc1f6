"""Joins the lines of a log to records: in a CSV, a quoted cell may continue on the next lines.

Pure, and linear: every line is scanned once, joined once, and at most once more taken by itself. In all other
formats each line is a record. Used by `sending/pipeline.py`, which gives each record to the parser.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from cli.importing.parsing.formats import Format
from cli.importing.reading.lines import Line

MAX_RECORD_BYTES = 1_000_000
"""No request could hold a longer record, so a quote that stays open for longer is a stray one."""


# a struct, like Line and Outgoing: a frozen dataclass takes four times as long to make
class Record(msgspec.Struct, frozen=True, gc=False):
    """The lines `first` to `last` with the line ends between them; `raw` is None if one line is too long."""

    first: int
    last: int
    raw: bytes | None

    @property
    def lines(self) -> int:
        """The number of lines."""
        return self.last - self.first + 1


class Records(Protocol):
    """Joins the lines of one log, in order."""

    def feed(self, line: Line) -> Sequence[Record]:
        """The records that this line completes, usually one."""

    def finish(self) -> Sequence[Record]:
        """Ends the log: the records that its last lines make."""


def records_for(form: Format) -> Records:
    """What joins the lines of a log in this format."""
    return QuotedRecords() if form == "csv" else SingleLines()


class SingleLines:
    """Each line is a record."""

    def feed(self, line: Line) -> Sequence[Record]:
        """See Records."""
        return (_single(line.number, line.raw),)

    def finish(self) -> Sequence[Record]:
        """See Records."""
        return ()


class QuotedRecords:
    """A record continues while a quote is open.

    A quote that stays open up to the end of the log, a line that was dropped, or MAX_RECORD_BYTES is stray.
    The lines that it joined are then records of their own, so that only those with an open quote are lost.
    """

    def __init__(self) -> None:
        self._lines: list[tuple[int, bytes]] = []
        self._size = 0
        self._is_open = False

    def feed(self, line: Line) -> Sequence[Record]:
        """See Records."""
        if line.raw is None:
            return [*self.finish(), _single(line.number, None)]
        self._lines.append((line.number, line.raw))
        self._size += len(line.raw) + 1
        self._is_open = _is_quote_open(line.raw, self._is_open)
        if self._is_open:
            return self.finish() if self._size > MAX_RECORD_BYTES else []
        lines = self._taken()
        # joined only now: joining at each line would copy the record again and again
        raw = b"\n".join([raw for _, raw in lines])
        return [Record(lines[0][0], lines[-1][0], raw.removesuffix(b"\r"))]

    def finish(self) -> Sequence[Record]:
        """See Records."""
        # not joined anew from the second line on: with a stray quote in every line, that is quadratic
        return [_single(number, raw) for number, raw in self._taken()]

    def _taken(self) -> list[tuple[int, bytes]]:
        lines, self._lines = self._lines, []
        self._size, self._is_open = 0, False
        return lines


def _single(number: int, raw: bytes | None) -> Record:
    # of a CRLF only; within a record it belongs to a cell
    return Record(number, number, None if raw is None else raw.removesuffix(b"\r"))


def _is_quote_open(raw: bytes, is_open: bool) -> bool:
    """Whether a quoted cell continues on the next line; `is_open`: one has continued on this line.

    A quote opens a cell only as its first character, and is doubled within a quoted cell (RFC 4180).

    >>> _is_quote_open(b'a,"b', False), _is_quote_open(b'5" pipe,b', False), _is_quote_open(b'""x",y', True)
    (True, False, False)
    """
    at = 0
    if not is_open and raw.startswith(b'"'):
        at, is_open = 1, True
    while True:
        if not is_open:
            # the rest of this cell, and every cell that begins otherwise, is plain text
            at = raw.find(b',"', at)
            if at < 0:
                return False
            at += 2
        at = raw.find(b'"', at)
        if at < 0:
            return True
        is_open = raw[at + 1 : at + 2] == b'"'
        at += 2 if is_open else 1
