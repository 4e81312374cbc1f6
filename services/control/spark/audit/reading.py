"""A second parser of the records of a fragments topic, used only by the audit.

Decides fragment, marker, tick or unreadable by the rules of the protocol (strict JSON, sizes, times). It uses
the standard library and deliberately not `shared/model/fragments.py`, so the two cannot share a fault. A test
compares both. Used by `services/control/spark/audit/job.py`.
"""

from __future__ import annotations

import json
import math
import re
import sys
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple

from services.control.spark.kafka.delivered import DEEP_STACK

Kind = Literal["fragment", "marker", "tick", "unreadable"]

MOST_KEY_BYTES = 256
MOST_ID_BYTES = 64
DEEPEST = 1000
EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  UTC throughout, the offset is subtracted by hand
LATEST_MS = (datetime(9999, 12, 31, 23, 59, 59) - EPOCH) // timedelta(milliseconds=1) + 999  # noqa: DTZ001
_LONGEST_INTEGER = 20
_FEW_BRACKETS = 100
"""With no more brackets than this, nesting cannot exceed Python's own recursion limit."""
_FEW_BYTES = 4_000
"""In no more bytes than this, no integer is too long for Python to convert."""
_TIMESTAMP = re.compile(
    r"(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ](?P<clock>[0-9]{2}:[0-9]{2}:)(?P<second>[0-9]{2})"
    r"(\.(?P<fraction>[0-9]+))?([Zz]|(?P<sign>[+-])(?P<hours>[0-9]{2}):(?P<minutes>[0-9]{2}))"
)


class Reading(NamedTuple):
    """The content of a record. `time` (ms) is the event time of a fragment or marker, or None."""

    kind: Kind
    key: str = ""
    time: int | None = None
    end: bool = False
    id: str | None = None


UNREADABLE = Reading("unreadable")


def read_record(key: bytes | None, value: bytes | None) -> Reading:
    """The content of a record; UNREADABLE if it breaks a rule. Never raises."""
    try:
        pairs = _decode_object(value or b"")
        return _read_mark(pairs) if key is None else _read_fragment(key, pairs)
    except (ValueError, RecursionError):  # UnicodeError and JSONDecodeError are ValueErrors
        return UNREADABLE


def read_timestamp(text: str) -> int:
    """Milliseconds since the epoch of an RFC 3339 time; finer fractions floor. Raises ValueError.

    >>> read_timestamp("2016-12-31T23:59:60Z") == read_timestamp("2017-01-01T00:00:00Z")
    True
    """
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise ValueError("not an RFC 3339 time")
    is_leap = match["second"] == "60"
    second = "59" if is_leap else match["second"]
    moment = datetime.strptime(f"{match['date']} {match['clock']}{second}", "%Y-%m-%d %H:%M:%S")  # noqa: DTZ007
    ms = (moment - EPOCH) // timedelta(milliseconds=1)
    ms += 1000 if is_leap else int((match["fraction"] or "0").ljust(3, "0")[:3])
    if match["sign"]:
        if match["hours"] > "23" or match["minutes"] > "59":
            raise ValueError("impossible offset")
        offset_ms = (int(match["hours"]) * 60 + int(match["minutes"])) * 60_000
        ms -= offset_ms if match["sign"] == "+" else -offset_ms
    return _checked_time(ms)


def _read_fragment(record_key: bytes, pairs: tuple[tuple[str, Any], ...]) -> Reading:
    key = fragment_id = time = None
    end = False
    # every occurrence must have the right type; the last one counts
    for name, value in pairs:
        if name == "key":
            key = _checked(value, str)
        elif name == "end":
            end = _checked(value, bool)
        elif name == "id":
            fragment_id = _checked(value, str)
        elif name == "time":
            time = value if isinstance(value, str) else _checked(value, int)
    if key is None or key.encode() != record_key or not 1 <= len(record_key) <= MOST_KEY_BYTES:
        raise ValueError("key")
    if fragment_id is not None and len(fragment_id.encode()) > MOST_ID_BYTES:
        raise ValueError("id")
    if isinstance(time, str):
        time = read_timestamp(time)
    elif time is not None:
        time = _checked_time(time)
    return Reading("fragment", key, time, end, fragment_id)


def _read_mark(pairs: tuple[tuple[str, Any], ...]) -> Reading:
    time = None
    for name, value in pairs:
        if name != "time":
            raise ValueError("a marker has no other field")
        time = None if value is None else _checked(value, int)
    return Reading("tick") if time is None else Reading("marker", time=_checked_time(time))


def _checked(value: Any, wanted: type) -> Any:
    if type(value) is not wanted:
        raise ValueError("wrong type")
    return value


def _checked_time(ms: int) -> int:
    if not 0 <= ms <= LATEST_MS:
        raise ValueError("outside the years 1970 to 9999")
    return ms


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _integer(text: str) -> float:
    # only times matter; other numbers may exceed the length that Python converts
    return int(text) if len(text) <= _LONGEST_INTEGER else math.inf


# objects become tuples of pairs (arrays are lists), so a repeated name stays visible
_decoder = json.JSONDecoder(
    object_pairs_hook=tuple,
    parse_int=_integer,
    parse_float=lambda _: math.inf,
    parse_constant=_refuse,
    strict=True,
)


_scan_short = json.JSONDecoder(object_pairs_hook=tuple, parse_constant=_refuse).scan_once  # type: ignore[attr-defined]
"""For texts of at most _FEW_BYTES, which hold no number that Python does not convert."""


def _decode_object(raw: bytes) -> tuple[tuple[str, Any], ...]:
    brackets = raw.count(b"{") + raw.count(b"[")
    if brackets > _FEW_BRACKETS or len(raw) > _FEW_BYTES or b"\\u" in raw:
        return _decode_any_object(raw, brackets)
    text = raw.decode()
    try:
        value, end = _scan_short(text, 0)
    except StopIteration:  # a value is missing
        return _decode_any_object(raw, brackets)
    if end == len(text) and type(value) is tuple:
        return value
    # white space around it, or a fault
    return _decode_any_object(raw, brackets)


def _decode_any_object(raw: bytes, brackets: int) -> tuple[tuple[str, Any], ...]:
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, DEEP_STACK))
    try:
        value: Any = _decoder.decode(raw.decode())
        if type(value) is not tuple:
            raise ValueError("not an object")
        if brackets > DEEPEST:
            _check_depth(value)
        if b"\\ud" in raw or b"\\uD" in raw:
            json.dumps(value, ensure_ascii=False).encode()  # half of a surrogate pair does not encode
    finally:
        sys.setrecursionlimit(limit)
    return value


def _check_depth(value: Any) -> None:
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > DEEPEST:
            raise ValueError("nested too deep")
        level = [child for parent in level for child in _children(parent) if type(child) in (tuple, list)]


def _children(value: Any) -> list[Any]:
    return value if type(value) is list else [child for _, child in value]
