"""How long to wait before a request is sent again: capped, jittered, and never less than asked for.

Pure: attempt, the server's `Retry-After` and a random number in, seconds out. `cli/client.py` is the one
place that retries. The shape (doubling, a cap, jitter against herds) is the one of Segment's and OTLP's
clients.
"""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

FIRST_DELAY_S = 0.1
MAX_DELAY_S = 5.0
MAX_RETRY_AFTER_S = 60.0
"""A server that asks for more than this is asked again all the same."""


def delay_for(attempt: int, retry_after_s: float | None, jitter: float) -> float:
    """Seconds to wait after the `attempt`-th try (from 1) failed; `jitter` lies in [0, 1).

    Half of the delay is fixed, half is jitter. What the server asks for is a lower bound.

    >>> [delay_for(n, None, 0.0) for n in (1, 2, 3, 20)]
    [0.05, 0.1, 0.2, 2.5]
    >>> delay_for(1, 3.0, 0.0)
    3.0
    """
    full: float = min(MAX_DELAY_S, FIRST_DELAY_S * 2 ** min(attempt - 1, 16))
    delay = full * (0.5 + jitter / 2)
    if retry_after_s is None:
        return delay
    return max(delay, min(retry_after_s, MAX_RETRY_AFTER_S))


def parse_retry_after(value: str | None, now: datetime) -> float | None:
    """Seconds that a `Retry-After` header (a number or an HTTP date) asks for, or None without one.

    >>> parse_retry_after("2", datetime(2026, 1, 1, tzinfo=UTC))
    2.0
    """
    if value is None:
        return None
    value = value.strip()
    if value.isascii() and value.isdecimal():
        return float(value[:9])
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - now).total_seconds())
