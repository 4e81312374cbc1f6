"""Counts and checksums of the rows that the lake has written, for each day of a group.

Pure. Every commit notes them (`plan.py`), so the audit can compare rows whose records the topic has lost.
The checksum of a day is the sum of its rows' checksums: their order does not matter, and compaction keeps it.
Days that are older than DAILY are summed by month, so that a note stays small.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta
from typing import Final

import msgspec

DAILY: Final = timedelta(days=62)
"""How long before the newest day each day has its own sum."""
MODULUS: Final = 2**60
_MONTH: Final = len("2026-01")

Span = tuple[int, int]
"""How many rows, and the sum of their checksums."""
Spans = Mapping[str, Span]
"""By day (`2026-01-31`) or month (`2026-01`)."""


class Sums(msgspec.Struct, frozen=True, kw_only=True):
    """What the lake has written of a group since day `since`; `""`: from the first row on."""

    since: str = ""
    spans: dict[str, Span] = {}

    def plus(self, days: Spans) -> Sums:
        """With the rows of these days, but not those before `since`."""
        spans = add(self.spans, {day: span for day, span in days.items() if day >= self.since})
        newest = max((name for name in spans if len(name) > _MONTH), default=None)
        if newest is None:
            return self
        oldest = (date.fromisoformat(newest) - DAILY).isoformat()
        old = {name: span for name, span in spans.items() if len(name) > _MONTH and name < oldest}
        kept = {name: span for name, span in spans.items() if name not in old}
        for name, span in old.items():
            kept = add(kept, {name[:_MONTH]: span})
        return Sums(since=self.since, spans=kept)

    def differences(self, days: Spans) -> dict[str, tuple[Span, Span]]:
        """By day or month that differs: a table's rows (`days`), and those that the lake has written."""
        held: dict[str, Span] = {}
        for day, span in days.items():
            if day >= self.since:
                is_old = day not in self.spans and day[:_MONTH] in self.spans
                held = add(held, {day[:_MONTH] if is_old else day: span})
        names = sorted(held.keys() | self.spans.keys())
        both = {name: (held.get(name, (0, 0)), self.spans.get(name, (0, 0))) for name in names}
        return {name: (found, wanted) for name, (found, wanted) in both.items() if found != wanted}


def add(spans: Spans, more: Spans, sign: int = 1) -> dict[str, Span]:
    """The sums of both; `sign` -1: without `more`.

    >>> add({"2026-01-31": (5, 70)}, {"2026-01-31": (1, 80)}, -1) == {"2026-01-31": (4, 2**60 - 10)}
    True
    """
    total = dict(spans)
    for name, (rows, checksum) in more.items():
        before = total.get(name, (0, 0))
        total[name] = before[0] + sign * rows, (before[1] + sign * checksum) % MODULUS
    return total
