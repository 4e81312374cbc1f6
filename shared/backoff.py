"""The wait before a retry: exponential, capped and jittered.

Every loop that retries after Unavailable uses it. The jitter keeps clients from hitting a server all at once
when it comes back (equal jitter, after AWS's "Exponential Backoff And Jitter").
"""

from __future__ import annotations

import random
from collections.abc import Callable


class Backoff:
    """Delays of `first_s`, twice that, …, up to `cap_s`; each is shortened by up to a half at random."""

    def __init__(
        self, *, first_s: float = 0.1, cap_s: float = 5.0, uniform: Callable[[], float] = random.random
    ) -> None:
        self._first_s = first_s
        self._cap_s = cap_s
        self._uniform = uniform
        self._failures = 0

    def __repr__(self) -> str:
        return f"<Backoff after {self._failures} failures>"

    def next_s(self) -> float:
        """The delay before the next attempt, in seconds.

        >>> backoff = Backoff(first_s=1, cap_s=3, uniform=lambda: 1.0)
        >>> [backoff.next_s() for _ in range(3)]
        [1.0, 2.0, 3.0]
        """
        # the exponent stops at 30: above every cap, and no float overflows
        longest = min(self._cap_s, self._first_s * 2.0 ** min(self._failures, 30))
        self._failures += 1
        return longest * (0.5 + 0.5 * self._uniform())

    def reset(self) -> None:
        """Starts again at `first_s`, after a success."""
        self._failures = 0
