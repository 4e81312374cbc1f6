"""Decides by its reason whether a reject is still stored, so that a flood pushes out nothing that is kept.

The topic is bounded in bytes, and Kafka deletes the oldest records first. Without shares, a client that posts
nonsense for some seconds deletes the rejects that others need for a replay. So a reason stores at most its
share at once, and as much again in the time for which the topic keeps records. Rejects beyond that are only
counted: a reject is kept for its whole time, or not at all. Pure; the caller passes the time. Used by
`kafka/rejects.py`. Source: the token bucket of traffic shaping.
"""

from __future__ import annotations

from dataclasses import dataclass

STORED_OVERHEAD_BYTES = 300
"""What a stored reject has besides its value: its headers, above all the detail. An estimate."""


@dataclass(slots=True)
class _Share:
    """What is left of a share, in bytes, at a time."""

    left: float
    at_s: float


class RejectShares:
    """The shares of all reasons; each is full at first, and fills up again evenly within `refill_s`."""

    def __init__(self, *, share_bytes: int, refill_s: float) -> None:
        self._share_bytes = share_bytes
        self._refill_s = refill_s
        self._shares: dict[str, _Share] = {}

    def __repr__(self) -> str:
        left = {reason: round(share.left) for reason, share in self._shares.items()}
        return f"<RejectShares of {self._share_bytes} bytes, left: {left}>"

    def take(self, reason: str, size: int, now_s: float) -> bool:
        """Takes `size` bytes from the share of the reason; False, and takes nothing, if less is left."""
        share = self._shares.setdefault(reason, _Share(self._share_bytes, now_s))
        come_back = self._share_bytes * (now_s - share.at_s) / self._refill_s
        share.left = min(self._share_bytes, share.left + come_back)
        share.at_s = now_s
        if size > share.left:
            return False
        share.left -= size
        return True
