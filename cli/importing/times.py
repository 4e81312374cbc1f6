"""Converts event times from logs to integer ms since the epoch.

Pure and exact (no floats): epoch seconds or milliseconds, RFC 3339, and the Common Log Format's
`01/Aug/1995:00:00:00 -0400`. Used by the parsers of `cli/importing/formats.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Literal

from shared.errors import InvalidInput
from shared.model.fragments import MAX_TIME_MS, FragmentRejected, parse_rfc3339

TimeUnit = Literal["auto", "s", "ms", "rfc3339", "clf"]
TIME_UNITS: tuple[TimeUnit, ...] = ("auto", "s", "ms", "rfc3339", "clf")
SECONDS_BELOW = 100_000_000_000
"""`auto` reads smaller numbers as seconds (up to the year 5138), larger ones as ms (from March 1973)."""

_NUMBER = re.compile(r"\d{1,15}(?:\.\d{1,18})?|\d(?:\.\d{1,18})?[eE]\+?\d{1,2}", re.ASCII)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_CLF = re.compile(rf"(\d\d)/({'|'.join(_MONTHS)})/(\d{{4}}):(\d\d:\d\d:)(\d\d) ([+-]\d{{4}})", re.ASCII)
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
    # the producer would reject it; here the line is named
    if not 0 <= time_ms <= MAX_TIME_MS:
        raise TimeUnreadable(f"{text!r} is outside the years 1970 … 9999")
    return time_ms


def _number(text: str) -> Decimal:
    # `Decimal` alone would accept NaN, underscores and exponents that fill the memory
    if _NUMBER.fullmatch(text) is None:
        raise TimeUnreadable(f"{text!r} is not a number of seconds or milliseconds")
    return Decimal(text)


def _rfc3339(text: str) -> int:
    try:
        return parse_rfc3339(text)
    except FragmentRejected as error:
        raise TimeUnreadable(f"{text!r}: {error.detail}") from None


def _clf(text: str) -> int:
    match = _CLF.fullmatch(text.removeprefix("[").removesuffix("]"))
    if match is None:
        raise TimeUnreadable(f"{text!r} is not a time like 01/Aug/1995:00:00:00 -0400")
    day, month, year, minute, second, zone = match.groups()
    # `datetime` has no second 60, so a leap second becomes the 59th plus one
    is_leap = second == "60"
    date = f"{year}-{_MONTHS.index(month) + 1:02}-{day}"
    try:
        # `strptime` would read the text as it is, but takes ten times as long
        moment = datetime.fromisoformat(f"{date}T{minute}{'59' if is_leap else second}{zone}")
        return (moment - _EPOCH) // _MS + (1000 if is_leap else 0)
    except (ValueError, OverflowError) as error:
        raise TimeUnreadable(f"{text!r}: {error}") from None


def _auto(text: str) -> int:
    # most logs have whole numbers, which need neither the pattern nor a Decimal
    if len(text) <= 15 and text.isascii() and text.isdecimal():
        whole = int(text)
        return whole * 1000 if whole < SECONDS_BELOW else whole
    if _NUMBER.fullmatch(text):
        number = Decimal(text)
        return int(number * 1000) if number < SECONDS_BELOW else int(number)
    # neither numbers nor RFC 3339 contain a slash
    if "/" in text:
        return _clf(text)
    return _rfc3339(text)


_READERS: dict[TimeUnit, Callable[[str], int]] = {
    "auto": _auto,
    "s": lambda text: int(_number(text) * 1000),
    "ms": lambda text: int(_number(text)),
    "rfc3339": _rfc3339,
    "clf": _clf,
}
