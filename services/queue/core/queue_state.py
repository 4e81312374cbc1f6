"""Everything that is known of a queue at one offset of its log, and the counts that people ask for.

Only fold.py changes it; snapshot.py writes and reads it. Two workers at the same offset have the same state,
to the byte of their snapshots.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from services.queue.core.commands import QueueSettings
from services.queue.core.known_ids import KnownIds
from services.queue.core.open_items import OpenItems, Place

MAX_OPEN = 20_000
"""Open items at most; beyond that only what comes back is leased."""


class Counts(msgspec.Struct, array_like=True):
    """What has happened since the queue was created. `expired`: leases that ended by time and were repeated;
    `repeats`: items dropped because of their id; `commands`: all but snapshots; `bare`: of the dead, those
    whose letters are without their values.
    """

    leased: int = 0
    acked: int = 0
    expired: int = 0
    released: int = 0
    repeats: int = 0
    dead: int = 0
    commands: int = 0
    bare: int = 0


class QueueStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Items by what they wait for: to be leased, for their worker, or for the end of a release's delay."""

    ready: int
    leased: int
    waiting: int


class QueueState:
    """The state of one queue. `settings`: None until it is created; `now_ms`: the highest append time."""

    def __init__(self) -> None:
        self.settings: QueueSettings | None = None
        self.now_ms = 0
        self.frontier: list[int] = []
        """Of each partition, the next offset that was never leased."""
        self.open = OpenItems()
        self.ids = KnownIds()
        self.counts = Counts()

    @property
    def incarnation(self) -> bytes:
        """The queue's incarnation, which each record of its log bears; b"" before its creation."""
        return b"" if self.settings is None else self.settings.incarnation

    def lowest_open(self) -> list[int]:
        """Of each partition, the lowest offset that is not done."""
        lowest = list(self.frontier)
        for item in self.open:
            lowest[item.partition] = min(lowest[item.partition], item.offset)
        return lowest

    def oldest_open(self, ends: Sequence[int], most: int) -> list[Place]:
        """Where about `most` items lie that are not done, the first ones of each partition below `ends`."""
        share = -(-most // max(1, len(self.frontier)))
        opened: list[list[int]] = [[] for _ in self.frontier]
        for item in self.open:
            opened[item.partition].append(item.offset)
        return [
            (number, offset)
            for number, (first, end) in enumerate(zip(self.frontier, ends, strict=True))
            for offset in [*sorted(opened[number])[:share], *range(first, min(end, first + share))][:share]
        ]

    def count_new(self, ends: Sequence[int]) -> int:
        """How many offsets below `ends` were never leased."""
        return sum(max(0, end - first) for end, first in zip(ends, self.frontier, strict=True))

    def guess_leasable(self, now_ms: int, ends: Sequence[int]) -> int:
        """How many items a lease could get at that time, roughly; 0 only if there is none. Takes no time."""
        new = min(self.count_new(ends), MAX_OPEN - len(self.open))
        return self.open.guess_due(now_ms) + new

    def status(self, now_ms: int, ends: Sequence[int]) -> QueueStatus:
        """The counts at that time, if the partitions end there."""
        due = self.open.count_due(now_ms)
        waiting = sum(item.is_released and item.until_ms > now_ms for item in self.open)
        return QueueStatus(
            ready=due + self.count_new(ends), leased=len(self.open) - due - waiting, waiting=waiting
        )
