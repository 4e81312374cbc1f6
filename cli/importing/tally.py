"""The counts of an import, from the lines read to the fragments acknowledged.

The pipeline and its lanes write them; the progress bar and the final table read them.
lines = parsed + unparsed; parsed >= sent >= accepted + rejected, and all are equal after a complete import.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

MAX_REASONS = 20
"""How many reasons keep an example; further reasons are counted as "other"."""


@dataclass(slots=True, kw_only=True)
class Refusals:
    """How often a reason occurred, and its first line."""

    count: int
    line: int
    detail: str


@dataclass(slots=True, kw_only=True)
class Tally:
    """Counts so far. `lines` excludes blank lines and a header; `bytes` counts accepted fragments.

    `waiting`: lines without an end that wait for the next import; `nuls`: bytes that were dropped before
    lines. `doubts`: times that are accepted although they look wrong, by `reading/clocks.py`.
    """

    lines: int = 0
    parsed: int = 0
    unparsed: int = 0
    sent: int = 0
    accepted: int = 0
    rejected: int = 0
    bytes: int = 0
    bytes_read: int = 0
    position: int = 0
    waiting: int = 0
    nuls: int = 0
    highest_time_ms: int | None = None
    reasons: dict[str, Refusals] = field(default_factory=dict)
    doubts: dict[str, Refusals] = field(default_factory=dict)

    @property
    def all_accepted(self) -> bool:
        """Whether every line became an acknowledged fragment."""
        return self.lines == self.accepted

    def count_unparsed(self, line: int, reason: str, detail: str, *, lines: int = 1) -> None:
        """Counts `lines` lines, from `line` on, that cannot become a fragment."""
        self.lines += lines
        self.unparsed += lines
        self._note(line, reason, detail, lines)

    def count_unsent(self, line: int, reason: str, detail: str) -> None:
        """Counts a fragment that is rejected without asking the producer."""
        self.sent += 1
        self.count_rejected(line, reason, detail)

    def count_rejected(self, line: int, reason: str, detail: str) -> None:
        """Counts a fragment that was rejected for good."""
        self.rejected += 1
        self._note(line, reason, detail)

    def count_accepted(self, size: int, time_ms: int | None) -> None:
        """Counts a fragment that Kafka acknowledged."""
        self.accepted += 1
        self.bytes += size
        # of accepted fragments only: a rejected one with a wrong time must not close everything
        if time_ms is not None:
            self.highest_time_ms = max(time_ms, self.highest_time_ms or 0)

    def count_doubt(self, line: int, doubt: str, detail: Callable[[], str]) -> None:
        """Counts a time that looks wrong; lines come in order, and only the first needs its detail."""
        if found := self.doubts.get(doubt):
            found.count += 1
        else:
            self.doubts[doubt] = Refusals(count=1, line=line, detail=detail())

    def sentences(self, place: str = "in line") -> Iterator[str]:
        """A sentence for each reason, then for each doubt; `place` says what the `line` is."""
        for reason, found in (*self.reasons.items(), *self.doubts.items()):
            yield f"{found.count:,} × {reason}, first {place} {found.line:,}: {found.detail}"

    def _note(self, line: int, reason: str, detail: str, count: int = 1) -> None:
        # reasons come from the producer; a strange one must not grow memory and output without bound
        if reason not in self.reasons and len(self.reasons) >= MAX_REASONS:
            reason = "other"
        found = self.reasons.get(reason)
        if found is None:
            self.reasons[reason] = Refusals(count=count, line=line, detail=detail[:200])
        else:
            found.count += count
            # lanes report out of order, and people look for the first line
            if line < found.line:
                found.line, found.detail = line, detail[:200]
