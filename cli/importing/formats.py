"""Parses the lines of a log: key, time, whether the line ends a session, and the row as JSON.

One parser per format, chosen by `parser_for`. It is fed the lines in order and keeps only the header (and,
for CSV, a record that continues on the next line). Pure. Text is UTF-8; a line that is not is read as
Latin-1, like old web logs. NDJSON must be UTF-8, because JSON is.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import msgspec

from cli.importing.times import TimeUnit, TimeUnreadable, parse_time
from shared.errors import InvalidInput

Format = Literal["access-log", "tsv", "ndjson", "csv"]
FORMATS: tuple[Format, ...] = ("access-log", "tsv", "ndjson", "csv")
MAX_CSV_RECORD_BYTES = 1_000_000
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


@dataclass(frozen=True, slots=True)
class Row:
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
    """Parses the lines of one log, in order."""

    def feed(self, raw: bytes) -> Row | None:
        """The row that this line completes; None for a blank line, the header, or part of a record.

        Raises LineUnreadable if this line cannot be imported, InvalidInput if the whole log cannot.
        """

    def finish(self) -> None:
        """Ends the log. Raises LineUnreadable when its last record is incomplete."""


def parser_for(form: Format, fields: Fields) -> Parser:
    """The parser of a format. Raises InvalidInput for a field that the format does not have."""
    match form:
        case "access-log":
            for name in filter(None, (fields.key, fields.time, fields.end)):
                if name not in ACCESS_FIELDS:
                    raise InvalidInput(
                        f"an access log has no field {name!r}; it has {_listed(ACCESS_FIELDS)}"
                    )
            return PlainParser(fields, _access_row)
        case "tsv":
            return TableParser(fields, lambda text: text.split("\t"), quoted=False)
        case "csv":
            return TableParser(fields, _csv_cells, quoted=True)
        case "ndjson":
            return JsonParser(fields)


class PlainParser:
    """One record per line; `read` returns its fields."""

    def __init__(self, fields: Fields, read: Callable[[str], Mapping[str, Any]]) -> None:
        self._fields = fields
        self._read = read

    def feed(self, raw: bytes) -> Row | None:
        """See Parser."""
        if not raw.strip():
            return None
        return _row(self._read(_text(raw)), self._fields)

    def finish(self) -> None:
        """See Parser."""


class TableParser:
    """A header line, then one record per line; with `quoted` (CSV) a quoted cell may contain line ends."""

    def __init__(self, fields: Fields, split: Callable[[str], list[str]], *, quoted: bool) -> None:
        self._fields = fields
        self._split = split
        self._quoted = quoted
        self._columns: list[str] | None = None
        self._part = b""

    def feed(self, raw: bytes) -> Row | None:
        """See Parser."""
        if self._quoted and (self._part or b'"' in raw):
            raw = self._part + raw
            self._part = b""
            if raw.count(b'"') % 2:  # in a whole record quotes come in pairs (RFC 4180)
                if len(raw) > MAX_CSV_RECORD_BYTES:
                    raise LineUnreadable("malformed", "a quote is never closed")
                self._part = raw + b"\n"
                return None
        if not raw.strip():
            return None
        cells = self._split(_text(raw))
        if self._columns is None:
            self._columns = self._header(cells)
            return None
        if len(cells) != len(self._columns):
            raise LineUnreadable(
                "columns", f"the line has {len(cells)} columns, the header {len(self._columns)}"
            )
        return _row(dict(zip(self._columns, cells, strict=True)), self._fields)

    def finish(self) -> None:
        """See Parser."""
        if self._part:
            raise LineUnreadable("malformed", "a quote is never closed")

    def _header(self, cells: list[str]) -> list[str]:
        for name in filter(None, (self._fields.key, self._fields.time, self._fields.end)):
            if name not in cells:
                raise InvalidInput(f"the header has no column {name!r}; it has {_listed(cells)}")
        if len(set(cells)) < len(cells):
            raise InvalidInput("the header names a column twice")
        return cells


class JsonParser:
    """One JSON object per line; its bytes become the row unchanged."""

    def __init__(self, fields: Fields) -> None:
        self._fields = fields

    def feed(self, raw: bytes) -> Row | None:
        """See Parser."""
        raw = raw.strip()
        if not raw:
            return None
        try:
            row = msgspec.json.decode(raw)
        except UnicodeDecodeError as error:
            raise LineUnreadable("encoding", f"not valid UTF-8 at byte {error.start}") from None
        except (msgspec.DecodeError, RecursionError) as error:
            raise LineUnreadable("malformed", str(error)) from None
        if not isinstance(row, dict):
            raise LineUnreadable("malformed", "the line is JSON, but not an object")
        return _row(row, self._fields, raw)

    def finish(self) -> None:
        """See Parser."""


def _row(row: Mapping[str, Any], fields: Fields, data: bytes | None = None) -> Row:
    key = _look_up(row, fields.key)
    if isinstance(key, int) and not isinstance(key, bool):
        key = str(key)
    if not isinstance(key, str) or not key:
        raise LineUnreadable("key", f"the field {fields.key!r} is missing, empty or not text")
    moment = _look_up(row, fields.time)
    if isinstance(moment, bool) or not isinstance(moment, str | int | float):
        raise LineUnreadable("time", f"the field {fields.time!r} is missing or not a time")
    try:
        time_ms = parse_time(str(moment), fields.unit)
    except TimeUnreadable as error:
        raise LineUnreadable("time", error.detail) from None
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
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def _csv_cells(text: str) -> list[str]:
    try:
        return next(csv.reader([text], strict=True))
    except csv.Error as error:
        raise LineUnreadable("malformed", str(error)) from None


def _access_row(text: str) -> dict[str, Any]:
    match = _ACCESS.fullmatch(text.strip())
    if match is None:
        raise LineUnreadable("malformed", "the line is not in the common or combined log format")
    host, logname, user, time, request, status, size, referer, useragent = match.groups()
    row: dict[str, Any] = {"host": host, "logname": logname, "user": user, "time": time, "request": request}
    if parts := _REQUEST.fullmatch(request):
        row |= {"method": parts[1], "path": parts[2], "protocol": parts[3] or ""}
    row["status"] = None if status == "-" else int(status)
    row["bytes"] = None if size == "-" else int(size)
    if referer is not None:
        row |= {"referer": referer, "useragent": useragent}
    return row


def _listed(names: list[str] | tuple[str, ...]) -> str:
    return ", ".join(name[:40] for name in names[:20])
