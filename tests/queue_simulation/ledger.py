"""What clients of simulated workers know, and what each of them may expect of what it gets."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from services.queue.core.open_items import Place
from services.queue.worker.handing_out import HandedOut, place_of


@dataclass(slots=True)
class Ledger:
    """What clients know of one incarnation of the queue, by place: who holds what until when, what is done.

    Not by number: an item that is put twice may be a dead letter, and then done again.
    """

    holders: dict[Place, tuple[str, int]] = field(default_factory=dict)
    acked: set[Place] = field(default_factory=set)
    asked: set[int] = field(default_factory=set)
    """Numbers of items that somebody has asked to be acked."""
    finished: set[int] = field(default_factory=set)
    """Numbers of items whose ack was confirmed."""
    seen: set[tuple[Place, int]] = field(default_factory=set)
    """Place and attempt of what was handed out."""
    sought: dict[int, int] = field(default_factory=dict)
    """By partition, the lowest offset that an operator has sought it back to: what follows may return."""
    is_purged: bool = False
    """Whether an operator has purged the queue."""

    def copy(self) -> Ledger:
        """What of it matters to a request that is made now."""
        return Ledger(acked=set(self.acked), finished=set(self.finished))

    def hand(
        self, name: str, found: Sequence[HandedOut], before: Ledger, now_ms: int, letters: Collection[int]
    ) -> list[str]:
        """The client gets these, after what was so when it asked; what is wrong with that, in words."""
        wrong = []
        for one in found:
            place, attempt, n = place_of(one.leased.receipt), one.leased.attempt, int(one.record.value)
            is_sought = place[1] >= self.sought.get(place[0], place[1] + 1)
            if place in before.acked and not is_sought:
                wrong.append(f"{place} was leased after its ack")
            # sought back, also its copies elsewhere may be the ones that are handed out; and what a purge has
            # done is done for who acks it, but its id is not kept, so a copy that was put later is no repeat
            if n in before.finished and n not in letters and not self.sought and not self.is_purged:
                wrong.append(f"{n} was handed out once more at {place}")
            if (place, attempt) in self.seen and not is_sought:
                wrong.append(f"{place} was handed out twice as attempt {attempt}")
            holder, until_ms = self.holders.get(place, ("", 0))
            if until_ms > now_ms and not is_sought:
                wrong.append(f"{place} was handed to {name} while {holder} holds it")
            self.seen.add((place, attempt))
            self.holders[place] = name, one.leased.until_ms
        return wrong

    def ask(self, name: str, how: str, found: Sequence[HandedOut]) -> None:
        """The client is about to settle these."""
        for one in found:
            place = place_of(one.leased.receipt)
            if how != "extend" and self.holders.get(place, ("", 0))[0] == name:
                del self.holders[place]
            if how == "ack":
                self.asked.add(int(one.record.value))
