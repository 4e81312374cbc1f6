"""Decides when an owner appends a tick, so that sessions on a silent stream can end.

Pure. A is the append time of the newest record, so it stands still while nobody writes, and with it every
session's silence. A tick is a record whose append time shows how late it is. The member's own clock only
proposes one: what the tick then closes depends on the broker's time alone. `Stream` asks in each turn.
"""

from __future__ import annotations

TICK_EVERY_S = 5.0
"""At most one tick in this time: a tick is a record that every group reads."""
QUIET_S = 2.0
"""A stream without a record for this long is silent."""


class Ticks:
    """When the stream was last written to, and when its owner last asked for a tick (monotonic seconds)."""

    __slots__ = ("last_record_s", "last_tick_s")

    def __init__(self, now_s: float) -> None:
        self.last_record_s = self.last_tick_s = now_s

    def __repr__(self) -> str:
        return f"<Ticks: last record {self.last_record_s}, last tick {self.last_tick_s}>"

    def may_come(self, now_s: float) -> bool:
        """Whether the stream is silent and the last tick long ago: then an idle session makes one due."""
        return now_s - self.last_record_s >= QUIET_S and now_s - self.last_tick_s >= TICK_EVERY_S
