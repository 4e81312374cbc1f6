"""Decides by reason and writer whether a reject is still stored, so a flood pushes out nothing that is kept.

The topic is bounded in bytes, and Kafka deletes the oldest records first. Without shares, a client that posts
nonsense for some seconds deletes the rejects that others need for a replay. So a reason stores at most its
share at once, and as much again in the time for which the topic keeps records. The writers (names of write
keys) divide the share, so that none uses up what the others may store. Rejects beyond that are only counted:
a reject is kept for its whole time, or not at all. Pure; the caller passes the time. Used by
`kafka/rejects.py`. Source: the token bucket of traffic shaping.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

STORED_OVERHEAD_BYTES = 300
"""What a stored reject has besides its value: its headers, above all the detail. An estimate."""


@dataclass(slots=True)
class _Share:
    """What is left of a share, in bytes, at a time."""

    left: float
    at_s: float


class RejectShares:
    """The shares of all reasons, each divided by `writers()`.

    A writer's part is full at first, and fills up again evenly within `refill_s`. `writers()` changes only
    when an operator changes the keys; a part is then cut to its new size, or grows as it fills up.
    """

    def __init__(self, *, share_bytes: int, refill_s: float, writers: Callable[[], int] = lambda: 1) -> None:
        self._share_bytes = share_bytes
        self._refill_s = refill_s
        self._writers = writers
        self._shares: dict[tuple[str, str], _Share] = {}

    def __repr__(self) -> str:
        left = {" ".join(name).strip(): round(share.left) for name, share in self._shares.items()}
        return f"<RejectShares of {self._share_bytes} bytes, left: {left}>"

    def take(self, reason: str, size: int, now_s: float, writer: str = "") -> bool:
        """Takes `size` bytes from the writer's part; False, and takes nothing, if less is left."""
        most = self._share_bytes / max(self._writers(), 1)
        share = self._shares.setdefault((reason, writer), _Share(most, now_s))
        come_back = most * (now_s - share.at_s) / self._refill_s
        share.left = min(most, share.left + come_back)
        share.at_s = now_s
        if size > share.left:
            return False
        share.left -= size
        return True
