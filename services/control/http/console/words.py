"""Numbers, sizes and times as people read them. Pure; what is not known becomes the empty text, never 0."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime

DAY_MS = 86_400_000


def count(number: float | None) -> str:
    """A number of things.

    >>> count(1842310), count(0), count(None)
    ('1,842,310', '0', '')
    """
    return "" if number is None else f"{number:,.0f}"


def short(number: int | None) -> str:
    """A number of things in at most four characters, for a bead.

    >>> [short(n) for n in (0, 999, 1000, 1234, 9_999, 18_412, 999_999, 2_500_000, 10**12)]
    ['0', '999', '1k', '1.2k', '9.9k', '18k', '999k', '2.5M', '1T']
    """
    if number is None:
        return ""
    for size, unit in ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= size:
            tenths = number * 10 // size  # cut, not rounded: 9,999 is not 10.0k
            return f"{tenths // 10}{unit}" if tenths >= 100 or tenths % 10 == 0 else f"{tenths / 10}{unit}"
    return str(number)


def per_second(rate: float | None) -> str:
    """A rate, without its unit.

    >>> per_second(211.4), per_second(17.46), per_second(0.0), per_second(1842.3)
    ('211', '17.5', '0', '1,842')
    """
    if rate is None:
        return ""
    return f"{rate:,.1f}" if 0 < rate < 100 else f"{rate:,.0f}"


def size(size_bytes: int | None) -> str:
    """A number of bytes with its unit.

    >>> size(0), size(999), size(88_000), size(15_649_120), size(12_000_000_000), size(10**15)
    ('0 B', '999 B', '88.0 kB', '15.6 MB', '12.0 GB', '1000.0 TB')
    """
    if size_bytes is None:
        return ""
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size_bytes >= unit:
            return f"{size_bytes / unit:.1f} {name}"
    return f"{size_bytes} B"


def span(duration_ms: float | None) -> str:
    """A length of time with its unit.

    >>> [span(ms) for ms in (0, 0.4, 43.2, 999.6, 7420, 14_000, 2_160_000, 6_720_000, 200_000_000)]
    ['0 ms', '0.4 ms', '43 ms', '1.00 s', '7.42 s', '14.0 s', '36 min', '1 h 52 min', '2 days']
    """
    if duration_ms is None:
        return ""
    if 0 < duration_ms < 1:
        return f"{duration_ms:.1f} ms"
    if duration_ms < 999.5:
        return f"{duration_ms:.0f} ms"
    seconds = duration_ms / 1000
    if seconds < 99.95:
        return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes // 1440} days"


def clock(at_ms: int | None, now_ms: int) -> str:
    """A time within 24 hours of now as a wall clock in UTC, any other with its day.

    >>> clock(1_700_000_000_000, 1_700_000_001_000), clock(1_700_000_000_000, 1_700_090_000_000)
    ('22:13:20', '14 Nov 22:13')
    """
    if at_ms is None:
        return ""
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    return f"{at:%H:%M:%S}" if abs(now_ms - at_ms) < DAY_MS else f"{at.day} {at:%b %H:%M}"


def plural(number: int, one: str, many: str = "") -> str:
    """The number with its noun.

    >>> plural(1, "stream"), plural(3, "stream"), plural(0, "session was", "sessions were")
    ('1 stream', '3 streams', '0 sessions were')
    """
    return f"{count(number)} {one if number == 1 else many or one + 's'}"


def shortened(text: str, most: int = 160) -> str:
    """The text; a longer one without its middle.

    >>> shortened("/shoes/4711"), shortened("/shoes/trail/red/4711", 12)
    ('/shoes/4711', '/shoes…/4711')
    """
    half = most // 2
    return text if len(text) <= most else f"{text[:half]}…{text[half + 1 - most :]}"


def digest_of(*texts: str) -> str:
    """A short name of the texts: other texts have another one."""
    return hashlib.blake2b("\n".join(texts).encode(), digest_size=6).hexdigest()


def listed(words: list[str]) -> str:
    """The words as a list in a sentence.

    >>> listed(["612", "613", "840"]), listed(["7"])
    ('612, 613 and 840', '7')
    """
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)
