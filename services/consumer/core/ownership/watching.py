"""Which members a member watches, and when it suspects one of them: its process has ended, and ZooKeeper does
not know yet.

Pure. A process that is killed leaves its host alive, and the host answers in its place: connections break,
and new ones are refused, because nothing listens there any more. Only that counts as evidence. A host that is
gone or cut off, or a process that is frozen, refuses nothing: then the time-out of the ZooKeeper session
decides. A suspicion may be wrong (a firewall that refuses, a port that was closed by mistake), so only groups
in which a second owner is harmless act on one. `member/neighbours.py` keeps the connections.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Collection

from shared.model.cluster import MemberNode

WATCHED = 3
"""Members that each member watches. As many watch it, so the end of any two of them together is noticed."""
WITHIN_MS = 200
"""Two connections that are refused within this time are no coincidence."""
SOON_MS = 50
"""Pause after the first failure; later ones double it."""
MAX_PAUSE_MS = 5000
STEADY_MS = 1000
"""A connection that has held for so long ends the doubling."""


def watched_by(me: str, members: Collection[str]) -> list[str]:
    """The members that `me` watches: the next ones in the order of their ids, around the end.

    >>> watched_by("d", "abcde"), watched_by("a", "ab"), watched_by("a", "a")
    (['e', 'a', 'b'], ['b'], [])
    """
    others = sorted(set(members) - {me})
    after = bisect(others, me)
    return (others[after:] + others[:after])[:WATCHED]


def is_same_process(one: MemberNode, other: MemberNode) -> bool:
    """Whether two nodes of a member are of the same process: a later one may have the same id and address."""
    return (one.address, one.pid, one.since) == (other.address, other.pid, other.since)


class Evidence:
    """What the connections to one process have shown so far. All times are of one clock."""

    def __init__(self) -> None:
        self.is_suspect = False
        """Whether its process has ended, by all that is known here."""
        self._connected_ms: int | None = None
        self._was_connected = False
        self._refused_ms: int | None = None
        self._failures = 0

    def __repr__(self) -> str:
        return f"<Evidence suspect={self.is_suspect} failures={self._failures}>"

    def connected(self, now_ms: int) -> None:
        """It listens: whatever was refused before does not count."""
        self._was_connected, self._connected_ms = True, now_ms
        self.is_suspect, self._refused_ms = False, None

    def broke(self, now_ms: int) -> None:
        """The connection has broken. That alone shows nothing."""
        if self._connected_ms is not None and now_ms - self._connected_ms >= STEADY_MS:
            self._failures = 0
        self._fail()

    def refused(self, now_ms: int) -> None:
        """Nothing listens there now. An address that has never answered may be wrong, so it shows nothing."""
        before_ms, self._refused_ms = self._refused_ms, now_ms
        is_second = before_ms is not None and now_ms - before_ms <= WITHIN_MS
        self.is_suspect |= self._was_connected and is_second
        if self._was_connected and before_ms is None:
            self._failures = 0  # the second attempt must be in time
        self._fail()

    def failed(self) -> None:
        """A connection could not be made for another reason, which shows nothing about the process."""
        self.is_suspect, self._refused_ms = False, None
        self._fail()

    @property
    def pause_ms(self) -> int:
        """How long to wait before the next connection."""
        return min(SOON_MS << max(0, self._failures - 1), MAX_PAUSE_MS)

    def _fail(self) -> None:
        self._connected_ms = None
        self._failures = min(self._failures + 1, 16)
