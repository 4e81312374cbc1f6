"""Notes when a stream's worker opened, read, caught up, committed and stopped, for status and events.

Filled by `worker.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Timeline:
    """What a worker has reached, and when. Times in ms are 0 and seconds are -1 until then.

    `opened` is set when reading first begins, or cannot because the log was lost; `reading` when the first
    record was read; `caught_up` when it has first read up to the stored position. `opened_after_s` counts
    from the beginning of the newest opening, `first_record_after_s` from the claim.
    """

    def __init__(self, now_s: Callable[[], float], wall_ms: Callable[[], int]) -> None:
        self.opened, self.reading, self.caught_up = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.opened_at_ms = self.first_record_at_ms = self.caught_up_at_ms = 0
        self.stopped_at_ms = self.committed_at_ms = 0
        self.opened_after_s = self.first_record_after_s = -1.0
        self._now_s, self._wall_ms = now_s, wall_ms
        self._claimed_s = self._began_s = now_s()

    def __repr__(self) -> str:
        return f"<Timeline: opened at {self.opened_at_ms}, committed at {self.committed_at_ms}>"

    def begin(self) -> None:
        """An opening begins."""
        self._began_s = self._now_s()

    def note_open(self) -> None:
        """The stream is open."""
        self.opened_after_s = self._now_s() - self._began_s
        if not self.opened.is_set():
            self.opened_at_ms = self._wall_ms()
            self.opened.set()

    def note_record(self) -> None:
        """Records were read."""
        if not self.reading.is_set():
            self.first_record_after_s = self._now_s() - self._claimed_s
            self.first_record_at_ms = self._wall_ms()
            self.reading.set()

    def note_caught_up(self) -> None:
        """The stored position is reached."""
        if not self.caught_up.is_set():
            self.caught_up_at_ms = self._wall_ms()
            self.caught_up.set()

    def note_commit(self) -> None:
        """A commit has succeeded."""
        self.committed_at_ms = self._wall_ms()

    def note_stop(self) -> None:
        """Reading has stopped."""
        self.stopped_at_ms = self._wall_ms()
