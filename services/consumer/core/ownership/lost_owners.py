"""Owners that ended without releasing their streams: killed, or cut off from ZooKeeper.

Pure. Such an owner cannot report its end, so the member that claims its stream does. The stream's znode shows
it: an orderly release writes the owner's last `seq` and the next owner there.
"""

from __future__ import annotations

from shared.model.cluster import View

AGAIN_MS = 10_000
"""A dead member's streams are claimed one by one; within this time they count as one end."""


class LostOwners:
    """What member `me` has claimed and reported; `note` each claim with the view that it was decided by."""

    def __init__(self, me: str) -> None:
        self._me = me
        self._claimed: set[int] = set()
        self._reported_ms: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<LostOwners of {self._me}: {sorted(self._reported_ms)}>"

    def note(self, stream: int, view: View, now_ms: int) -> str | None:
        """The owner whose end is to be reported with this claim; None if it released the stream, or is known.

        Of this member's own streams: an earlier process of it, because a process knows its own end.
        """
        node = view.node(stream)
        is_known = node.owner == self._me and stream in self._claimed
        self._claimed.add(stream)
        if not node.owner or is_known or node.seq is not None or node.target is not None:
            return None
        last_ms = self._reported_ms.get(node.owner)
        self._reported_ms[node.owner] = now_ms
        return node.owner if last_ms is None or now_ms - last_ms > AGAIN_MS else None
