"""What `baton rejected` shows: the number of open rejects by reason, and the newest of them, safe to print.

Pure: stored rejects in, rows out. Text from clients is shown with every character escaped that is not
printable, so that it cannot control the terminal.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from cli.kafka.rejects import StoredReject
from cli.rejects.identity import OpenRejects, posted_of
from cli.terminal.escaping import escaped

SHOWN_BYTES = 200
"""Bytes of a reject that are shown."""


@dataclass(slots=True, kw_only=True)
class ReasonCount:
    """The rejects of one reason; `first` and `last` are times in ms."""

    count: int = 0
    cut: int = 0
    bytes: int = 0
    first: int
    last: int


class Listing:
    """Counts open rejects by reason and keeps the newest `limit`; with a `reason`, ignores all others."""

    def __init__(self, rejects: OpenRejects, *, limit: int, reason: str | None = None) -> None:
        self._rejects = rejects
        self._reason = reason
        # only these are kept: a topic of rejects may hold millions
        self._newest: deque[StoredReject] = deque(maxlen=limit)
        self.reasons: dict[str, ReasonCount] = {}
        self.dismissed = 0

    def __repr__(self) -> str:
        return f"<Listing of {self.total} rejects, {len(self._newest)} of them shown>"

    @property
    def total(self) -> int:
        """The number of counted rejects."""
        return sum(found.count for found in self.reasons.values())

    def add(self, page: Iterable[StoredReject]) -> None:
        """Counts the rejects of a page."""
        for stored in page:
            reject = stored.reject
            # the topic has one order for all reasons, so every reject is read
            if self._reason not in (None, reject.reason) or not self._rejects.is_newest(stored):
                continue
            if self._rejects.is_dismissed(stored):
                self.dismissed += 1
                continue
            found = self.reasons.setdefault(
                reject.reason, ReasonCount(first=stored.time_ms, last=stored.time_ms)
            )
            found.count += 1
            found.cut += reject.is_cut
            found.bytes += posted_of(stored).size
            found.first = min(found.first, stored.time_ms)
            found.last = max(found.last, stored.time_ms)
            self._newest.append(stored)

    def rows(self) -> list[dict[str, Any]]:
        """The newest rejects in the order of their times, as `-o json` prints them."""
        return [
            {
                "id": posted_of(stored).id,
                "partition": stored.partition,
                "offset": stored.offset,
                "time": stored.time_ms,
                "reason": stored.reject.reason,
                "detail": stored.reject.detail,
                "size": posted_of(stored).size,
                "index": stored.reject.index,
                "cut": stored.reject.is_cut,
                "beginning": escaped(posted_of(stored).value[:SHOWN_BYTES]),
            }
            # partitions are read one after the other, so the newest of all need sorting
            for stored in sorted(self._newest, key=lambda stored: (stored.time_ms, stored.offset))
        ]

    def by_reason(self) -> list[dict[str, Any]]:
        """A row per reason, the most frequent first."""
        return [
            {"reason": reason, **asdict(found)}
            for reason, found in sorted(self.reasons.items(), key=lambda pair: (-pair[1].count, pair[0]))
        ]
