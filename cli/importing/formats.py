"""Parses the lines of a log: key, time, whether the line ends a session, and the row as JSON.

One parser per format, chosen by `parser_for`. It is fed the records in order (in all formats but CSV a record
is a line, see `cli/importing/records.py`) and keeps only the header. Pure. Text is UTF-8; a line that is not
is read as Latin-1, like old web logs. NDJSON must be UTF-8, because JSON is.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import msgspec

from cli.importing.times import TimeUnit, TimeUnreadable, parse_time
from shared.errors import InvalidInput

Format = Literal["access-log", "tsv", "ndjson", "csv"]
FORMATS: tuple[Format, ...] = ("access-log", "tsv", "ndjson", "csv")
_TRUE = frozenset({"true", "1", "yes"})
_MISSING: Any = object()

# host ident user [time] "request" status bytes, and in the combined format "referer" "user agent"
_QUOTED = r'"((?:[^"\\]|\\.)*)"'
_ACCESS = re.compile(
    rf"(\S+) (\S+) (.+?) \[([^\]]+)\] {_QUOTED} (\d{{3}}|-) (\d+|-)(?: {_QUOTED} {_QUOTED})?(?: .*)?"
)
_REQUEST = re.compile(r"([A-Z]+) (\S+)(?: (\S+))?")
ACCESS_FIELDS = (
    *("host", "logname", "user", "time", "request", "method", "path", "protocol"),
    *("status", "bytes", "referer", "useragent"),
)


class LineUnreadable(InvalidInput):
    """The line cannot be imported; `reason` is a word that programs can group by."""

    def __init__(self, reason: str, detail: str) -> None:
        self.reason = reason
        super().__init__(detail)


# a struct, like Line and Record: a frozen dataclass takes four times as long to make
class Row(msgspec.Struct, frozen=True, gc=False):
    """A parsed line; `data` is JSON text."""

    key: str
    time_ms: int
    end: bool
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Fields:
    """The fields of key, time and (optionally) end: column names, or dotted paths for NDJSON."""

    key: str
    time: str
    unit: TimeUnit = "auto"
    end: str | None = None


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
        case "access-log":
            _check_names(fields, ACCESS_FIELDS, "an access log has no field")
            return PlainParser(fields, _access_row)
        case "ndjson":
            return PlainParser(fields, _json_row)
        case _:
            return TableParser(fields, quoted=form == "csv")


class PlainParser:
    """One record per line, without a header."""

    def __init__(self, fields: Fields, read: Callable[[bytes, Fields], Row]) -> None:
        self.header = b""
        self._fields = fields
        self._read = read

    def feed(self, raw: bytes) -> Row | None:
        """See Parser."""
        raw = raw.strip()
        return self._read(raw, self._fields) if raw else None


class TableParser:
    """A header line, then one record per line.

    With `quoted` it is CSV; else cells are separated by tabs.
    """

    def __init__(self, fields: Fields, *, quoted: bool) -> None:
        self.header = b""
        self._fields = fields
        self._quoted = quoted
        self._columns: list[str] | None = None

    def feed(self, raw: bytes) -> Row | None:
        """See Parser."""
        if not raw.strip():
            return None
        cells = _csv_cells(_text(raw)) if self._quoted else _text(raw).split("\t")
        if self._columns is None:
            _check_names(self._fields, cells, "the header has no column")
            if len(set(cells)) < len(cells):
                raise InvalidInput("the header names a column twice")
            self.header, self._columns = raw, cells
            return None
        # a value in the wrong column would go unnoticed
        if len(cells) != len(self._columns):
            raise LineUnreadable(
                "columns", f"the line has {len(cells)} columns, the header {len(self._columns)}"
            )
        return _row(dict(zip(self._columns, cells, strict=True)), self._fields)


def _row(row: Mapping[str, Any], fields: Fields, data: bytes | None = None) -> Row:
    key = _look_up(row, fields.key)
    # numbers are common as keys; a bool is an int to Python, but surely the wrong field
    if isinstance(key, int) and not isinstance(key, bool):
        key = str(key)
    # an empty key would join strangers into one session
    if not isinstance(key, str) or not key:
        raise LineUnreadable("key", f"the field {fields.key!r} is missing, empty or not text")
    moment = _look_up(row, fields.time)
    # a bool is an int to Python, and `true` would be the first millisecond of 1970
    if isinstance(moment, bool) or not isinstance(moment, str | int | float):
        raise LineUnreadable("time", f"the field {fields.time!r} is missing or not a time")
    try:
        time_ms = parse_time(str(moment), fields.unit)
    except TimeUnreadable as error:
        raise LineUnreadable("time", error.detail) from None
    # anything but a clear yes keeps the session open: its end by silence is only later
    end = False if fields.end is None else _is_true(_look_up(row, fields.end))
    return Row(key, time_ms, end, msgspec.json.encode(row) if data is None else data)


def _look_up(row: Mapping[str, Any], path: str) -> Any:
    """The value of a field, or at a dotted path into nested objects; _MISSING if there is none."""
    if path in row:  # a field whose own name contains dots comes first
        return row[path]
    value: Any = row
    for name in path.split("."):
        if not isinstance(value, Mapping) or name not in value:
            return _MISSING
        value = value[name]
    return value


def _is_true(value: Any) -> bool:
    return value is True or str(value).strip().lower() in _TRUE


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    # Latin-1 gives every byte a character, so this cannot fail
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def _csv_cells(text: str) -> list[str]:
    try:
        return next(csv.reader([text], strict=True))
    except csv.Error as error:
        # the record ends here, so its last quote is stray
        never_closed = str(error) == "unexpected end of data"
        raise LineUnreadable("malformed", "a quote is never closed" if never_closed else str(error)) from None


def _json_row(raw: bytes, fields: Fields) -> Row:
    try:
        row = msgspec.json.decode(raw)
    except UnicodeDecodeError as error:
        raise LineUnreadable("encoding", f"not valid UTF-8 at byte {error.start}") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise LineUnreadable("malformed", str(error)) from None
    if not isinstance(row, dict):
        raise LineUnreadable("malformed", "the line is JSON, but not an object")
    # the line's own bytes: encoding it again could change numbers
    return _row(row, fields, raw)


def _access_row(raw: bytes, fields: Fields) -> Row:
    match = _ACCESS.fullmatch(_text(raw).strip())
    if match is None:
        raise LineUnreadable("malformed", "the line is not in the common or combined log format")
    host, logname, user, time, request, status, size, referer, useragent = match.groups()
    row: dict[str, Any] = {"host": host, "logname": logname, "user": user, "time": time, "request": request}
    # scanners send anything as a request: such a line has no method and path, but it is still a visit
    if parts := _REQUEST.fullmatch(request):
        row |= {"method": parts[1], "path": parts[2], "protocol": parts[3] or ""}
    row["status"] = None if status == "-" else int(status)
    row["bytes"] = None if size == "-" else int(size)
    if referer is not None:
        row |= {"referer": referer, "useragent": useragent}
    return _row(row, fields)


def _check_names(fields: Fields, names: Sequence[str], complaint: str) -> None:
    for name in filter(None, (fields.key, fields.time, fields.end)):
        if name not in names:
            # a binary file may pass for a header, so both lengths are bounded
            listed = ", ".join(name[:40] for name in names[:20])
            raise InvalidInput(f"{complaint} {name!r}; it has {listed}")
