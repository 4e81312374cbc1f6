"""How long to wait before trying again: growing, capped, jittered.

Every loop that retries what is Unavailable uses it, so that a server that comes back is not met by all
of its clients at once (full jitter, after AWS's "Exponential Backoff And Jitter").
"""

from __future__ import annotations

import random
from collections.abc import Callable


class Backoff:
    """Delays between half of and a whole `first_s`, then twice that, …, never above `cap_s`."""

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
        """The delay before the next try, in seconds.

        >>> backoff = Backoff(first_s=1, cap_s=3, uniform=lambda: 1.0)
        >>> [backoff.next_s() for _ in range(3)]
        [1.0, 2.0, 3.0]
        """
        # 2**30 times anything is above every cap, and no float overflows
        whole = min(self._cap_s, self._first_s * 2.0 ** min(self._failures, 30))
        self._failures += 1
        return whole * (0.5 + 0.5 * self._uniform())

    def reset(self) -> None:
        """It worked: the next failure waits `first_s` again."""
        self._failures = 0
