"""Parses the records of a log, format by format.

One parser per format, chosen by `parser_for`. It is fed the records in order (in all formats but CSV a record
is a line, see `reading/records.py`) and keeps only the header. Pure. Text is UTF-8; a line that is not
is read as Latin-1, like old web logs. NDJSON must be UTF-8, because JSON is.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Literal, Protocol

import msgspec

from cli.importing.parsing.grammars import Grammar, access_log, alb, haproxy
from cli.importing.parsing.rows import Fields, LineUnreadable, Row, RowReader
from shared.errors import InvalidInput

Format = Literal["access-log", "access-log-vhost", "haproxy", "alb", "w3c", "tsv", "csv", "ndjson"]
FORMATS: tuple[Format, ...] = (
    "access-log",
    "access-log-vhost",
    "haproxy",
    "alb",
    "w3c",
    "tsv",
    "csv",
    "ndjson",
)
USUAL_FIELDS: dict[Format, tuple[str, str]] = {
    "access-log": ("host", "time"),
    "access-log-vhost": ("host", "time"),
    "haproxy": ("client", "time"),
    "alb": ("client", "time"),
    "w3c": ("c-ip", "datetime"),
}
"""Key and time of the formats whose fields are known beforehand."""
_W3C_FIELDS = b"#Fields:"
_W3C_VALUE = re.compile(r'"[^"]*+"|\S++')
# floats as they are written: a time in seconds must not be rounded
_decode_json = msgspec.json.Decoder(float_hook=Decimal).decode


class Parser(Protocol):
    """Parses the records of one log, in order; `header` is the log's header, once it was read."""

    header: bytes

    def feed(self, raw: bytes) -> Row | None:
        """The record's row; None for a blank line or the header.

        Raises LineUnreadable if this record cannot be imported, InvalidInput if the whole log cannot.
        """


def parser_for(form: Format, fields: Fields) -> Parser:
    """The parser of a format. Raises InvalidInput for a field that the format does not have."""
    match form:
        case "access-log" | "access-log-vhost":
            return _by_grammar(
                access_log(fields.client_from, has_vhost=form == "access-log-vhost"), form, fields
            )
        case "haproxy":
            return _by_grammar(haproxy(), form, fields)
        case "alb":
            return _by_grammar(alb(), form, fields)
        case "ndjson":
            return LineParser(_json_reader(RowReader(fields, is_text=False)))
        case "w3c":
            return W3cParser(fields)
        case "tsv" | "csv":
            return TableParser(fields, quoted=form == "csv")


class LineParser:
    """One record per line, without a header."""

    def __init__(self, read: Callable[[bytes], Row]) -> None:
        self.header = b""
        self._read = read

    def feed(self, raw: bytes) -> Row | None:
        """See Parser."""
        raw = raw.strip()
        return self._read(raw) if raw else None


class TableParser:
    """A header line, then one record per line.

    With `quoted` it is CSV; else cells are separated by tabs. Empty columns at the end are none.
    """

    def __init__(self, fields: Fields, *, quoted: bool) -> None:
        self.header = b""
        self._fields = fields
        self._rows = RowReader(fields, is_text=True)
        self._cells = _csv_cells if quoted else _tab_cells
        self._columns: list[str] = []

    def feed(self, raw: bytes) -> Row | None:
        """See Parser."""
        if not raw.strip():
            return None
        if not self._columns:
            self.header, self._columns = raw, self._read_header(raw)
            return None
        cells, columns = self._cells(_text(raw)), self._columns
        # a value in the wrong column would go unnoticed
        if len(cells) < len(columns) or any(cells[len(columns) :]):
            raise LineUnreadable("columns", f"the line has {len(cells)} columns, the header {len(columns)}")
        return self._rows.read(dict(zip(columns, cells, strict=False)))

    def _read_header(self, raw: bytes) -> list[str]:
        try:
            columns = self._cells(_text(raw))
        except LineUnreadable as error:
            raise InvalidInput(f"the header cannot be read: {error.detail}") from None
        while columns and not columns[-1]:
            columns.pop()
        _check_names(self._fields, columns, "the header has no column")
        if len(set(columns)) < len(columns):
            raise InvalidInput("the header names a column twice")
        return columns


class W3cParser:
    """The extended log format of the W3C, as IIS and CloudFront write it.

    Lines with `#` are remarks, and `#Fields:` names the columns from there on. Blanks or tabs part the
    values. `datetime` joins `date` and `time`, which are UTC.
    """

    def __init__(self, fields: Fields) -> None:
        self.header = b""
        self._fields = fields
        in_utc = msgspec.structs.replace(fields, zone=fields.zone or "UTC")
        self._rows = RowReader(in_utc, is_text=True)
        self._columns: list[str] = []

    def feed(self, raw: bytes) -> Row | None:
        """See Parser."""
        raw = raw.strip()
        if raw.startswith(_W3C_FIELDS):
            columns = _text(raw).split()[1:]
            if not self._columns:
                _check_names(self._fields, [*columns, "datetime"], "the line #Fields names no")
            self.header, self._columns = raw, columns
        if not raw or raw.startswith(b"#"):
            return None
        if not self._columns:
            raise LineUnreadable("columns", "no line #Fields: precedes this one")
        text = _text(raw)
        cells = text.split("\t") if "\t" in text else _W3C_VALUE.findall(text)
        if len(cells) != len(self._columns):
            raise LineUnreadable("columns", f"the line has {len(cells)} values, #Fields {len(self._columns)}")
        values = dict(zip(self._columns, cells, strict=True))
        if "date" in values and "time" in values:
            values["datetime"] = f"{values['date']} {values['time']}"
        return self._rows.read(values)


def _by_grammar(grammar: Grammar, form: Format, fields: Fields) -> Parser:
    _check_names(fields, grammar.names, f"the format {form} has no field")
    rows = RowReader(fields, is_text=True)
    return LineParser(lambda raw: rows.read(grammar.read(_text(raw))))


def _json_reader(rows: RowReader) -> Callable[[bytes], Row]:
    def read(raw: bytes) -> Row:
        try:
            values: Any = _decode_json(raw)
        except UnicodeDecodeError as error:
            raise LineUnreadable("encoding", f"not valid UTF-8 at byte {error.start}") from None
        except (msgspec.DecodeError, RecursionError) as error:
            raise LineUnreadable("malformed", str(error)) from None
        if not isinstance(values, dict):
            raise LineUnreadable("malformed", "the line is JSON, but not an object")
        # the line's own bytes: encoding it again could change numbers
        return rows.read(values, raw)

    return read


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    # Latin-1 gives every byte a character, so this cannot fail
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def _tab_cells(text: str) -> list[str]:
    if "\r" in text:
        raise _carriage_return()
    return text.split("\t")


def _csv_cells(text: str) -> list[str]:
    try:
        return next(csv.reader([text], strict=True))
    except csv.Error as error:
        if "new-line character" in str(error):
            raise _carriage_return() from None
        # the record ends here, so its last quote is stray
        never_closed = str(error) == "unexpected end of data"
        raise LineUnreadable("malformed", "a quote is never closed" if never_closed else str(error)) from None


def _carriage_return() -> LineUnreadable:
    return LineUnreadable("line-end", "a carriage return within the line: do lines end with CR alone?")


def _check_names(fields: Fields, names: Sequence[str], complaint: str) -> None:
    for name in filter(None, (fields.key, fields.time, fields.end)):
        if name not in names:
            # a binary file may pass for a header, so both lengths are bounded
            listed = ", ".join(name[:40] for name in names[:20])
            raise InvalidInput(f"{complaint} {name!r}; it has {listed}")
