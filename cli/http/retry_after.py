"""The wait that a server asks for with a `Retry-After` header, in seconds.

Pure: the header's value and the current time in, seconds out. `cli/http/requests.py` takes it as the least
wait before it sends a request again.
"""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

MAX_RETRY_AFTER_S = 60.0
"""A server that asks for a longer wait gets this one: a wrong date must not stop an import for hours."""


def parse_retry_after(value: str | None, now: datetime) -> float:
    """Seconds that a `Retry-After` header (a number or an HTTP date) asks for; 0 without a readable one.

    >>> parse_retry_after("2", datetime(2026, 1, 1, tzinfo=UTC))
    2.0
    """
    value = (value or "").strip()
    if value.isascii() and value.isdecimal():
        return min(float(value[:9]), MAX_RETRY_AFTER_S)
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return 0.0
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return min(max(0.0, (moment - now).total_seconds()), MAX_RETRY_AFTER_S)
