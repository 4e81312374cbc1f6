"""A fetch session (KIP-227): the broker remembers what one connection reads, and hears only of changes.

An idle member with 1,000 streams then sends 20 bytes a poll instead of 50 KB. The broker may end a session at
any time, or refuse one; the next request then names everything again.
"""

from __future__ import annotations

from collections.abc import Mapping

from shared.kafka.wire.fetch import FetchRequest, Place, Wish

MAX_EPOCH = 2**31 - 1


class FetchSession:
    """Builds the requests of one long poll, one after the other. `id`: 0 without a session."""

    def __init__(self, *, is_committed: bool) -> None:
        self.id = 0
        self._is_committed = is_committed
        self._epoch = 0
        self._known: dict[Place, Wish] = {}
        """What the broker believes to be wished."""

    def __repr__(self) -> str:
        return f"<FetchSession {self.id} in epoch {self._epoch} over {len(self._known)}>"

    def request(self, wishes: Mapping[Place, Wish], wait_ms: int, max_bytes: int) -> FetchRequest:
        """A fetch of exactly these partitions. Call `answered` or `reset` before the next."""
        changed = {place: wish for place, wish in wishes.items() if self._known.get(place) != wish}
        forgotten = [place for place in self._known if place not in wishes]
        self._known = dict(wishes)
        return FetchRequest(
            wishes=changed,
            wait_ms=wait_ms,
            max_bytes=max_bytes,
            forgotten=forgotten,
            session=(self.id, self._epoch),
            is_committed=self._is_committed,
        )

    def answered(self, session_id: int) -> None:
        """Takes over the session that the broker has named in its answer: 0 if it has none to spare."""
        if session_id == 0:
            self.reset()
        else:
            self.id, self._epoch = session_id, self._epoch % MAX_EPOCH + 1

    def reset(self) -> None:
        """Begins anew: the broker has ended the session, or an answer is missing."""
        self.id, self._epoch = 0, 0
        self._known = {}
