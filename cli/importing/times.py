"""Converts event times from logs to integer ms since the epoch.

Pure and exact (no floats): epoch seconds or milliseconds, RFC 3339, and the Common Log Format's
`01/Aug/1995:00:00:00 -0400`. Used by the parsers of `cli/importing/formats.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal, InvalidOperation
from typing import Literal

from shared.errors import InvalidInput
from shared.model.fragments import MAX_TIME_MS, FragmentRejected, parse_rfc3339

TimeUnit = Literal["auto", "s", "ms", "rfc3339", "clf"]
TIME_UNITS: tuple[TimeUnit, ...] = ("auto", "s", "ms", "rfc3339", "clf")
SECONDS_BELOW = 100_000_000_000
"""`auto` reads smaller numbers as seconds (up to the year 5138), larger ones as ms (from March 1973)."""

_NUMBER = re.compile(r"\d{1,15}(?:\.\d{1,18})?|\d(?:\.\d{1,18})?[eE]\+?\d{1,2}", re.ASCII)
_CLF = re.compile(r"(\d\d)/([A-Z][a-z][a-z])/(\d{4}):(\d\d):(\d\d):(\d\d) ([+-])(\d\d)(\d\d)", re.ASCII)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


class TimeUnreadable(InvalidInput):
    """The time cannot be read."""


def parse_time(text: str, unit: TimeUnit) -> int:
    """Milliseconds since the epoch, rounded down. Raises TimeUnreadable.

    >>> parse_time("807256800", "auto"), parse_time("1.5", "s")
    (807256800000, 1500)
    >>> parse_time("01/Aug/1995:00:00:00 -0400", "clf")
    807249600000
    """
    time_ms = _READERS[unit](text.strip())
    if not 0 <= time_ms <= MAX_TIME_MS:
        raise TimeUnreadable(f"{text!r} is outside the years 1970 … 9999")
    return time_ms


def _number(text: str) -> Decimal:
    if _NUMBER.fullmatch(text) is None:
        raise TimeUnreadable(f"{text!r} is not a number of seconds or milliseconds")
    try:
        return Decimal(text)
    except InvalidOperation:
        raise TimeUnreadable(f"{text!r} is not a number") from None


def _seconds(text: str) -> int:
    return int(_number(text) * 1000)


def _milliseconds(text: str) -> int:
    return int(_number(text))


def _rfc3339(text: str) -> int:
    try:
        return parse_rfc3339(text)
    except FragmentRejected as error:
        raise TimeUnreadable(f"{text!r}: {error.detail}") from None


def _clf(text: str) -> int:
    match = _CLF.fullmatch(text.removeprefix("[").removesuffix("]"))
    if match is None or match[2] not in _MONTHS:
        raise TimeUnreadable(f"{text!r} is not a time like 01/Aug/1995:00:00:00 -0400")
    offset = timedelta(hours=int(match[8]), minutes=int(match[9])) * (1 if match[7] == "+" else -1)
    second = int(match[6])  # `datetime` knows no second 60, so a leap second becomes the 59th plus one
    try:
        moment = datetime(
            int(match[3]),
            _MONTHS.index(match[2]) + 1,
            int(match[1]),
            int(match[4]),
            int(match[5]),
            min(second, 59) if second <= 60 else second,
            tzinfo=timezone(offset),
        )
        return (moment - _EPOCH) // _MS + (1000 if second == 60 else 0)
    except (ValueError, OverflowError) as error:
        raise TimeUnreadable(f"{text!r}: {error}") from None


def _auto(text: str) -> int:
    if _NUMBER.fullmatch(text):
        number = _number(text)
        return int(number * 1000) if number < SECONDS_BELOW else int(number)
    if "/" in text:
        return _clf(text)
    return _rfc3339(text)


_READERS: dict[TimeUnit, Callable[[str], int]] = {
    "auto": _auto,
    "s": _seconds,
    "ms": _milliseconds,
    "rfc3339": _rfc3339,
    "clf": _clf,
}
