"""The rules of a queue once more, as simply as they can be said: one dictionary, no heaps, no snapshots.

It reads every command in the order of the log and asserts what clients are promised. The simulation compares
its answers and its state with those of the real fold.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import msgspec

from services.queue.core.commands import (
    CHANGEABLE,
    Ack,
    AnyCommand,
    CommandRecord,
    Configure,
    Dead,
    Enter,
    Lease,
    QueueSettings,
    Receipt,
    Seek,
    SnapshotPart,
    Until,
)

Place = tuple[int, int]


@dataclass(slots=True)
class Held:
    """An item that is leased, or was and waits. `first` is its first lease, `lease` the last one."""

    first: int
    lease: int
    until: int
    attempts: int
    id: str = ""
    is_back: bool = False
    """Whether its holder gave it back."""


@dataclass(slots=True)
class Reference:
    """`why` says of each place below the frontier that is not open, why it is done."""

    now: int = 0
    settings: QueueSettings | None = None
    frontier: list[int] = field(default_factory=list)
    held: dict[Place, Held] = field(default_factory=dict)
    why: dict[Place, str] = field(default_factory=dict)
    left: dict[str, tuple[Place, int]] = field(default_factory=dict)
    """Ids of acked items, with the time until which they are known."""
    tally: Counter[str] = field(default_factory=Counter)
    """What the fold counts, and `skipped`."""
    deaths: list[tuple[Place, int]] = field(default_factory=list)
    """Place and first lease of each item that became a dead letter."""

    def apply(self, offset: int, append_ms: int, record: CommandRecord) -> list[Any]:
        """The answers in plain values; None to what is meant for another queue of this name."""
        self.now = max(self.now, append_ms)
        if record.incarnation != (self.settings.incarnation if self.settings else b""):
            self.tally["foreign"] += len(record.commands)
            return [None for _ in record.commands]
        return [self._one(offset, command) for command in record.commands]

    def _one(self, offset: int, command: AnyCommand) -> Any:
        self.tally["commands"] += not isinstance(command, SnapshotPart)
        if isinstance(command, Configure):
            new = command.settings
            if self.settings is None:
                self.frontier = [0] * new.partitions
            else:
                old = msgspec.structs.asdict(self.settings)
                fields = CHANGEABLE if command.fields is None else command.fields
                new = QueueSettings(**old | {name: getattr(new, name) for name in fields})
            self.settings = new
            return None
        if self.settings is None:
            return None
        match command:
            case Lease():
                return self._lease(offset, command)
            case Enter():
                return self._enter(command)
            case Ack():
                return [self._finish(offset, receipt, "acked") for receipt in command.receipts]
            case Dead():
                self.tally["bare"] += command.is_bare * sum(
                    self._good(receipt) is not None for receipt in dict.fromkeys(command.receipts)
                )
                return [self._finish(offset, receipt, "dead") for receipt in command.receipts]
            case Until():
                return [self._put_off(receipt, command) for receipt in command.receipts]
            case Seek():
                self._seek(command)
        return None

    def _lease(self, offset: int, command: Lease) -> Any:
        assert self.settings is not None
        got: list[tuple[Place, int]] = []
        buried: list[Place] = []
        back = [place for place, one in self.held.items() if one.until <= self.now]
        for place in sorted(back, key=lambda place: place[::-1]):
            if len(got) == command.count:
                break
            one = self.held[place]
            self.tally["expired"] += not one.is_back
            one.lease, one.is_back = offset, False
            if 0 < self.settings.max_attempts <= one.attempts:
                one.until = self.now + 30_000
                buried.append(place)
            else:
                one.attempts += 1
                one.until = self.now + command.ms
                got.append((place, one.attempts))
        while len(got) < command.count:
            waiting = [end - first for end, first in zip(command.ends, self.frontier, strict=True)]
            partition = max(range(len(waiting)), key=lambda n: (waiting[n], -n))
            if waiting[partition] <= 0:
                break
            place = (partition, self.frontier[partition])
            assert place not in self.held, f"{place} is leased twice"
            self.why.pop(place, None)
            self.held[place] = Held(offset, offset, self.now + command.ms, 1)
            self.frontier[partition] += 1
            got.append((place, 1))
        self.tally["leased"] += len(got)
        return got, buried

    def _enter(self, command: Enter) -> bool:
        one = self._good(command.receipt)
        if one is None:
            return False
        known = {other.id for other in self.held.values() if other.id and other is not one}
        known |= {id_ for id_, (_, until) in self.left.items() if self.now <= until}
        if command.id in known and one.id != command.id:
            self._done(command.receipt[:2], "repeat")
            return False
        one.id = command.id
        return True

    def _finish(self, offset: int, receipt: Receipt, why: str) -> bool:
        """Whether the receipt is good."""
        place = receipt[:2]
        one = self._good(receipt)
        if one is None:
            is_of_before = receipt.lease < offset
            return is_of_before and place not in self.held and place[1] < self.frontier[place[0]]
        assert self.settings is not None
        if why == "acked" and one.id:
            self.left.pop(one.id, None)
            self.left[one.id] = place, self.now + self.settings.repeat_ms
        if why == "dead":
            self.deaths.append((place, one.first))
        self._done(place, why)
        return True

    def _put_off(self, receipt: Receipt, command: Until) -> bool:
        one = self._good(receipt)
        if one is not None:
            if command.is_unseen and not one.is_back:
                one.attempts -= 1
            self.tally["released"] += command.is_release
            ends = [self.now + command.ms, *([one.until] if command.is_at_least else [])]
            one.until, one.is_back = max(ends), command.is_release
        return one is not None

    def _seek(self, command: Seek) -> None:
        target = list(self.frontier)
        for partition, to in enumerate(command.to):
            here = self.frontier[partition]
            is_to_the_end = command.drop or (bool(command.ends) and command.ends[partition] <= (to or 0))
            if to is not None and not (is_to_the_end and to < here):
                target[partition] = to
            for offset in range(here, target[partition]):
                self.why[partition, offset] = "skipped"
        gone = {place for place in self.held if command.drop or place[1] >= target[place[0]]}
        self.frontier = target
        for place in gone:
            self._done(place, "skipped")
        for place in [place for place in self.why if place[1] >= self.frontier[place[0]]]:
            del self.why[place]
        self.left = {
            id_: (place, until)
            for id_, (place, until) in self.left.items()
            if place not in gone and place[1] < self.frontier[place[0]]
        }

    def _good(self, receipt: Receipt) -> Held | None:
        one = self.held.get(receipt[:2])
        return one if one is not None and one.lease == receipt.lease else None

    def _done(self, place: Place, why: str) -> None:
        del self.held[place]
        self.why[place] = why
        self.tally[why] += 1
