"""Shares a bounded number of open streams among callers: whoever holds the most makes room for the others.

Used by the feed of events and by the console's live pages. A caller alone may have every seat. Once all are
taken, another caller takes one from whoever holds the most, until both hold equally many.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Seat:
    """The right to one open stream. `is_lost`: another caller has it now, and the stream must end."""

    holder: str
    is_lost: bool = False


class Seats:
    """At most `most` of them; a holder is the name of a caller."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._taken: dict[str, list[Seat]] = {}

    def __repr__(self) -> str:
        return f"<Seats: {len(self)} of {self.most} taken>"

    def __len__(self) -> int:
        return sum(map(len, self._taken.values()))

    def has_room(self, holder: str) -> bool:
        """Whether `take` would give the holder a seat that it keeps."""
        return len(self) < self.most or self._held(self._richest()) > self._held(holder) + 1

    def take(self, holder: str) -> Seat:
        """A seat for the holder. If there are too many now, the newest one of the richest holder is lost."""
        seat = Seat(holder)
        self._taken.setdefault(holder, []).append(seat)
        if len(self) > self.most:
            self.leave(lost := self._taken[self._richest()][-1])
            lost.is_lost = True
        return seat

    def leave(self, seat: Seat) -> None:
        """Frees the seat, unless it is lost."""
        if seat.is_lost:
            return
        seats = self._taken[seat.holder]
        seats.remove(seat)
        if not seats:
            del self._taken[seat.holder]

    def _richest(self) -> str:
        return max(self._taken, key=self._held)

    def _held(self, holder: str) -> int:
        return len(self._taken.get(holder, ()))
