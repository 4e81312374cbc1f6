"""Converts event times from logs to integer ms since the epoch.

Pure and exact (no floats): epoch seconds, milliseconds, microseconds or nanoseconds, dates with a time of
day, and the Common Log Format's `01/Aug/1995:00:00:00 -0400`. Used by the parsers of
`parsing/formats.py`.
"""

from __future__ import annotations

import functools
import re
import zoneinfo
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Literal

from shared.errors import InvalidInput
from shared.model.fragments import MAX_TIME_MS, FragmentRejected, parse_rfc3339

TimeUnit = Literal["auto", "s", "ms", "us", "ns", "rfc3339", "clf"]
TIME_UNITS: tuple[TimeUnit, ...] = ("auto", "s", "ms", "us", "ns", "rfc3339", "clf")
SECONDS_BELOW, MS_BELOW, US_BELOW = 10**11, 10**14, 10**17
"""`auto` reads numbers by their size: as seconds up to the year 5138, as the others from March 1973 on."""

Read = Callable[[str], int]
_NUMBER = re.compile(r"\d{1,20}(?:\.\d{1,18})?|\d(?:\.\d{1,18})?[eE]\+?\d{1,2}", re.ASCII)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAY_TIME = r"(\d\d:\d\d)(?::(\d\d(?:[.,]\d+)?))? ?(Z|UTC|GMT|[+-]\d\d(?::?\d\d)?)?"
_DATE = re.compile(rf"(\d{{4}})-(\d\d)-(\d\d)[T ]{_DAY_TIME}", re.ASCII | re.IGNORECASE)
_CLF = re.compile(rf"(\d\d?)/({'|'.join(_MONTHS)})/(\d{{4}})[: ]{_DAY_TIME}", re.ASCII | re.IGNORECASE)
_OFFSET = re.compile(r"([+-])(\d\d):?([0-5]\d)", re.ASCII)
_DIGITS = {"s": 3, "ms": 0, "us": -3, "ns": -6}
"""By how many digits a number of each unit is moved to be one of ms."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


class TimeUnreadable(InvalidInput):
    """The time cannot be read."""


def time_reader(unit: TimeUnit = "auto", zone: str | None = None, pattern: str | None = None) -> Read:
    """What reads a time as ms since the epoch, rounded down, and raises TimeUnreadable.

    `zone` is that of times without one; `pattern` is one of `strptime`, instead of the unit. Raises
    InvalidInput for a zone that does not exist.

    >>> time_reader()("807256800"), time_reader("s")("1.5")
    (807256800000, 1500)
    >>> time_reader("clf")("01/Aug/1995:00:00:00 -0400")
    807249600000
    >>> time_reader(zone="Europe/Berlin")("2025-07-01 02:00:00")
    1751328000000
    """
    place = None if zone is None else _zone(zone)
    read: Read
    if pattern is not None:
        read = functools.partial(_by_pattern, pattern, place)
    else:
        match unit:
            case "auto":
                read = functools.partial(_auto, place)
            case "rfc3339":
                read = _rfc3339
            case "clf":
                read = functools.partial(_clf, place)
            case "s" | "ms" | "us" | "ns":
                read = functools.partial(_number, _DIGITS[unit])

    def within_years(text: str) -> int:
        time_ms = read(text.strip())
        # the producer would reject it; here the line is named
        if not 0 <= time_ms <= MAX_TIME_MS:
            raise TimeUnreadable(f"{text[:80]!r} is outside the years 1970 … 9999")
        return time_ms

    return within_years


def _zone(name: str) -> tzinfo:
    if match := _OFFSET.fullmatch(name):
        sign, hours, minutes = match.groups()
        offset = timedelta(hours=int(hours), minutes=int(minutes))
        if offset < timedelta(days=1):
            return timezone(-offset if sign == "-" else offset)
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidInput(
            f"there is no time zone {name!r}: use one like Europe/Berlin, UTC or +02:00"
        ) from None


def _auto(zone: tzinfo | None, text: str) -> int:
    # most logs have whole numbers, which need neither the pattern nor a Decimal
    if len(text) <= 20 and text.isascii() and text.isdecimal():
        return _by_size(int(text))
    if _NUMBER.fullmatch(text):
        return _by_size(Decimal(text))
    # neither numbers nor dates with hyphens contain a slash
    return _clf(zone, text) if "/" in text else _date(zone, text)


def _by_size(number: int | Decimal) -> int:
    if number < SECONDS_BELOW:
        return _ms(number, 3)
    return _ms(number, 0 if number < MS_BELOW else -3 if number < US_BELOW else -6)


def _number(digits: int, text: str) -> int:
    # `Decimal` alone would accept NaN, underscores and exponents that fill the memory
    if _NUMBER.fullmatch(text) is None:
        raise TimeUnreadable(f"{text[:80]!r} is not a number")
    return _ms(Decimal(text), digits)


def _ms(number: int | Decimal, digits: int) -> int:
    """The number times ten to the power of `digits`, rounded down."""
    if isinstance(number, Decimal):
        return int(number.scaleb(digits))
    return int(number * 10**digits) if digits > 0 else int(number // 10**-digits)


def _rfc3339(text: str) -> int:
    try:
        return parse_rfc3339(text)
    except FragmentRejected as error:
        raise TimeUnreadable(f"{text[:80]!r}: {error.detail}") from None


def _date(zone: tzinfo | None, text: str) -> int:
    match = _DATE.fullmatch(text)
    if match is None:
        raise TimeUnreadable(f"{text[:80]!r} is neither a number nor a date with a time of day")
    return _moment(zone, text, *match.groups())


def _clf(zone: tzinfo | None, text: str) -> int:
    match = _CLF.fullmatch(text.removeprefix("[").removesuffix("]"))
    if match is None:
        raise TimeUnreadable(f"{text[:80]!r} is not a time like 01/Aug/1995:00:00:00 -0400")
    day, month, year, *rest = match.groups()
    return _moment(zone, text, year, f"{_MONTHS.index(month.lower()) + 1:02}", f"{day:0>2}", *rest)


def _moment(
    zone: tzinfo | None,
    text: str,
    year: str,
    month: str,
    day: str,
    minute: str,
    second: str | None,
    at: str | None,
) -> int:
    """The ms of these parts of `text`; `at` is its zone, if it names one."""
    offset = "Z"
    if at is not None and at[0] in "+-":
        offset = f"{at[:3]}:{at[-2:] if len(at) > 3 else '00'}"
    moment = f"{year}-{month}-{day}T{minute}:{(second or '00').replace(',', '.')}"
    try:
        # `strptime` would read the text as it is, but takes ten times as long
        time_ms = parse_rfc3339(moment + offset)
    except FragmentRejected:
        raise TimeUnreadable(f"{text[:80]!r}: there is no such day, time or zone") from None
    return time_ms if at is not None else _without_zone(zone, text, _EPOCH + time_ms * _MS)


def _without_zone(zone: tzinfo | None, text: str, moment: datetime) -> int:
    """The ms of a time of day in this zone."""
    if zone is None:
        raise TimeUnreadable(f"{text[:80]!r} names no time zone: give --time-zone")
    try:
        return (moment.replace(tzinfo=zone) - _EPOCH) // _MS
    except OverflowError:
        raise TimeUnreadable(f"{text[:80]!r} is outside the years 1970 … 9999") from None


def _by_pattern(pattern: str, zone: tzinfo | None, text: str) -> int:
    try:
        moment = datetime.strptime(text, pattern)  # noqa: DTZ007  the zone may be in the pattern
    except (ValueError, re.error) as error:
        raise TimeUnreadable(str(error)) from None
    if moment.tzinfo is None:
        return _without_zone(zone, text, moment.replace(tzinfo=UTC))
    return (moment - _EPOCH) // _MS
