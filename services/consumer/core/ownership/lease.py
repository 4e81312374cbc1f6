"""How long a member may act: as long as its ZooKeeper session is certainly alive.

Pure. ZooKeeper counts a session's time-out from when it receives a request. The member knows only when it
sent one, which is earlier. So for one time-out after it sent the last request that the leader answered, no
other member can have taken over. A factor below 1 leaves time to stop, and for a follower that reports its
sessions to the leader late. Used by the member and the coordinator; all times are of one clock that counts
suspension.
"""

from __future__ import annotations

from dataclasses import dataclass

FACTOR = 0.75
"""The part of the time-out in which a member acts. There are six pings in a time-out, and a lost connection
is made again within a second or two: the lease survives both. A quarter of the time-out remains. A follower
takes up to half a tick, which is at most this quarter, to report a session's requests to the leader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """`answered_s`: when the last request that the leader answered was sent; `timeout_s`: as negotiated.

    >>> lease = Lease(answered_s=100.0, timeout_s=6.0)
    >>> lease.end_s, lease.is_alive(104.4), lease.is_alive(104.5), lease.left_s(103.0)
    (104.5, True, False, 1.5)
    """

    answered_s: float
    timeout_s: float
    factor: float = FACTOR

    @property
    def length_s(self) -> float:
        """How long it is when ZooKeeper has just answered."""
        return self.timeout_s * self.factor

    @property
    def end_s(self) -> float:
        """The moment from which the member may no longer act."""
        return self.answered_s + self.length_s

    def is_alive(self, now_s: float) -> bool:
        """Whether the member may act: its ZooKeeper session is certainly alive."""
        return now_s < self.end_s

    def left_s(self, now_s: float) -> float:
        """Seconds until the member must stop; 0 from then on."""
        return max(0.0, self.end_s - now_s)
