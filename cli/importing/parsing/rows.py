"""Makes a row of a line's fields: the key, the event time, and whether the line ends its session.

Pure. A key that only stands for a missing value would join strangers into one session, so such a line is
rejected. Used by `parsing/formats.py` for every format.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from cli.importing.parsing.times import TimeUnit, TimeUnreadable, time_reader
from shared.errors import InvalidInput

ClientFrom = Literal["host", "forwarded", "tail"]
CLIENT_FROM: tuple[ClientFrom, ...] = ("host", "forwarded", "tail")
"""Where an access log has the client: as the host, first in a list in its place, or after the user agent."""
NULLS = ("-", "NULL", r"\N", "(null)", "nil", "nan", "None", "undefined", "NA", "N/A", "unix:")
"""What text formats write for a missing value, in any case; `unix:` is nginx's address of a local socket."""
_ALWAYS_NULL = frozenset({"", "-"})
_TRUE = frozenset({"true", "1", "yes"})
_MISSING: Any = object()


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


class Fields(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of key, time and (optionally) end, as column names or dotted paths; how to read them.

    `zone` is that of times without one, `time_format` a pattern of `strptime`. `nulls`: the keys that stand
    for a missing value, None for the usual ones of the format.
    """

    key: str
    time: str
    unit: TimeUnit = "auto"
    end: str | None = None
    zone: str | None = None
    time_format: str | None = None
    nulls: tuple[str, ...] | None = None
    client_from: ClientFrom = "host"


class RowReader:
    """Reads rows from the fields of lines; `is_text`: the format has no null of its own.

    Raises InvalidInput for a zone that does not exist.
    """

    def __init__(self, fields: Fields, *, is_text: bool) -> None:
        self._fields = fields
        self._time = time_reader(fields.unit, fields.zone, fields.time_format)
        nulls = fields.nulls if fields.nulls is not None else NULLS if is_text else ()
        self._nulls = {null.strip().casefold() for null in nulls} | _ALWAYS_NULL

    def read(self, values: Mapping[str, Any], data: bytes | None = None) -> Row:
        """The row of these values; `data` is their JSON, if the line has it. Raises LineUnreadable."""
        fields = self._fields
        key = _look_up(values, fields.key)
        # numbers are common as keys; a bool is an int to Python, but surely the wrong field
        if isinstance(key, int) and not isinstance(key, bool):
            key = str(key)
        if not isinstance(key, str):
            raise LineUnreadable("key", f"the field {fields.key!r} is missing or not text")
        if key.strip().casefold() in self._nulls:
            is_what = f"is {key!r}, which stands for no value (see --null)"
            raise LineUnreadable("key", f"the field {fields.key!r} {is_what}")
        moment = _look_up(values, fields.time)
        # a bool is an int to Python, and `true` would be the first millisecond of 1970
        if moment is None or moment is _MISSING or isinstance(moment, bool | list | dict):
            raise LineUnreadable("time", f"the field {fields.time!r} is missing or not a time")
        try:
            time_ms = self._time(str(moment))
        except TimeUnreadable as error:
            raise LineUnreadable("time", error.detail) from None
        # anything but a clear yes keeps the session open: its end by silence is only later
        end = False if fields.end is None else _is_true(_look_up(values, fields.end))
        return Row(key, time_ms, end, msgspec.json.encode(values) if data is None else data)


def _look_up(values: Mapping[str, Any], path: str) -> Any:
    """The value of a field, or at a dotted path into nested objects; _MISSING if there is none."""
    if path in values:  # a field whose own name contains dots comes first
        return values[path]
    value: Any = values
    for name in path.split("."):
        if not isinstance(value, Mapping) or name not in value:
            return _MISSING
        value = value[name]
    return value


def _is_true(value: Any) -> bool:
    return value is True or str(value).strip().lower() in _TRUE
