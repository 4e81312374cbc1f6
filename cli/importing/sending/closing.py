"""Which times an import accepts, and when it may close its sessions by a marker without being asked.

Pure. A marker closes the sessions of *everybody* up to its time, in every group. So an import sends one by
itself only where silence would close these sessions too: at a time older than gap plus lateness. Used by
`cli/importing/run.py`; the bounds come from the settings of the groups (docs/protocol.md).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from shared.model.group import GroupSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeBounds:
    """The longest silence that keeps a session open, and how far event time may run ahead; in ms."""

    silence_ms: int
    future_ms: int

    def latest_ms(self, now_ms: int) -> int:
        """The highest event time that a group accepts as it is; a higher one comes from a wrong clock."""
        return now_ms + self.future_ms

    def is_past(self, time_ms: int, now_ms: int) -> bool:
        """Whether silence has closed, or is about to close, every session up to this time."""
        return time_ms < now_ms - self.silence_ms


def bounds_of(groups: Iterable[GroupSettings]) -> TimeBounds:
    """The bounds that hold for all of these groups, or those of a group with default settings without any.

    >>> bounds_of([GroupSettings(gap_ms=1, lateness_ms=5), GroupSettings(gap_ms=2, lateness_ms=3)]).silence_ms
    6
    """
    # a group that starts later reads the log, and its markers, from the beginning
    known = list(groups) or [GroupSettings()]
    return TimeBounds(
        silence_ms=max(group.gap_ms + group.lateness_ms for group in known),
        future_ms=max(group.future_ms for group in known),
    )
