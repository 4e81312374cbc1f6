"""A token bucket. The clock is an argument. Used by the producer's write keys and by control's logins."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from shared.errors import Unavailable


class RateLimited(Unavailable):
    """A rate is used up; retry after `retry_after_s`."""

    def __init__(self, what: str, retry_after_s: int) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(f"{what} has used up its rate; retry in {retry_after_s} s")


class RateLimit:
    """A bucket of `what` uses up: it fills up at `rate` per second, and holds `most`.

    By default it holds a second's worth, at least one. A user takes one when it is admitted, and more later,
    when its size is known. So the bucket may fall below zero, and the next users wait for that.
    """

    __slots__ = ("_at_s", "_left", "_most", "_now_s", "_what", "rate")

    def __init__(
        self,
        what: str,
        rate: float,
        *,
        most: float | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.rate = rate
        self._what = what
        self._now_s = now_s
        self._left = self._most = max(rate, 1.0) if most is None else most
        self._at_s = now_s()

    def __repr__(self) -> str:
        return f"<RateLimit of {self.rate:g}/s: {self._left:.1f} left>"

    def admit(self) -> None:
        """Takes one. Raises RateLimited if there is none."""
        now_s = self._now_s()
        self._left = min(self._left + (now_s - self._at_s) * self.rate, self._most)
        self._at_s = now_s
        if self._left < 1:
            raise RateLimited(self._what, math.ceil((1 - self._left) / self.rate))
        self._left -= 1

    def take(self, more: int) -> None:
        """Takes more for one that was admitted; a negative number gives back."""
        self._left -= more
