"""When a worker's next life may begin, and why the last one failed.

Each life fences, loads and replays, so a stream that fails again and again is opened less and less often. An
opening that works is not progress after a failure that came later: a record that cannot be fetched, or a
session that cannot be written, fails every life at the same point. Only a commit beyond that point ends the
back-off, or a while at the log's end with nothing to commit. Used by `worker.py`; `/status` reports it.
"""

from __future__ import annotations

from collections.abc import Callable

from services.consumer.core.commits.stream import Stream
from shared.backoff import Backoff

FIRST_S = 0.1
OPENING_CAP_S = 5.0
"""Between openings that fail: Kafka is away, and the stream should go on soon after it is back."""
WORKING_CAP_S = 30.0
"""Between lives that open and then fail: each may replay 100 MB before it fails at the same point."""
STEADY_S = 30.0
"""This long at the log's end without a failure is progress. Longer than the watchdog takes (20 s) to find a
reader that hangs, which seems to be at the end too."""


class Retries:
    """Counts failed lives since the last progress.

    `why`: the reason of the last one, or of a rewind; "" if there is none. `last_why`: the same, also after
    progress. `wait_s`: before the next life.
    """

    def __init__(self, uniform: Callable[[], float]) -> None:
        self.failures = 0
        self.why = self.last_why = ""
        self.wait_s = 0.0
        self._opening = Backoff(first_s=FIRST_S, cap_s=OPENING_CAP_S, uniform=uniform)
        self._working = Backoff(first_s=FIRST_S, cap_s=WORKING_CAP_S, uniform=uniform)
        self._failed_seq = -1
        """The highest head that a failed life stood on; -1 while only openings have failed."""
        self._steady_since_s: float | None = None

    def __repr__(self) -> str:
        return f"<Retries after {self.failures} failures at seq {self._failed_seq}: {self.why!r}>"

    @property
    def status(self) -> dict[str, int | str]:
        """What logs and `/status` say about it."""
        return {"failures": self.failures, "why": self.why, "last_why": self.last_why}

    def give_up(self, why: str) -> None:
        """Notes that no further life would help: the stream is in `rewind`."""
        self.why = self.last_why = why

    def fail(self, why: str, core: Stream | None) -> None:
        """Notes that a life has failed. `core` is None if it was not opened."""
        self.failures += 1
        self.why = self.last_why = why
        self._steady_since_s = None
        if core is None:
            self.wait_s = self._opening.next_s()
        else:
            self._failed_seq = max(self._failed_seq, core.head.seq)
            self.wait_s = self._working.next_s()

    def observe(self, core: Stream, end: int, now_s: float) -> None:
        """Notes how far a running stream is. `end`: of its log, as far as known."""
        if not self.failures:
            return
        if core.is_replaying or core.has_changes or core.position < end:
            self._steady_since_s = None
        elif self._steady_since_s is None:
            self._steady_since_s = now_s
        is_steady = self._steady_since_s is not None and now_s - self._steady_since_s >= STEADY_S
        if core.head.seq > self._failed_seq or is_steady:
            self.failures, self.why = 0, ""
            self._opening.reset()
            self._working.reset()
