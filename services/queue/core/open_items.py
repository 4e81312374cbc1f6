"""The open items of a queue, leased or waiting to come back; and which of them comes back next.

An item is open from its first lease until it is done. Two heaps find those whose time is over without a look
at the others; their entries may be outdated, so `_open` decides. Used by fold.py.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import TypeAlias

import msgspec

Place: TypeAlias = tuple[int, int]
"""Partition and offset of an item."""


class OpenItem(msgspec.Struct, gc=False, array_like=True):
    """An item that was leased and is not done. `lease`: offset of the record that leased it last.

    `until_ms`: when it comes back. `attempts`: how often it was leased. `is_released`: given back since. `id`
    is known once it was entered; "" before, and for an item without one. `first_lease`: offset of the record
    that leased it first; after a seek it is another one, so it tells the lives of an item apart.
    """

    partition: int
    offset: int
    lease: int
    until_ms: int
    attempts: int = 1
    is_released: bool = False
    id: str = ""
    first_lease: int = -1

    @property
    def place(self) -> Place:
        return self.partition, self.offset


class OpenItems:
    """The open items by place. `now_ms` of the calls never decreases."""

    def __init__(self) -> None:
        self._open: dict[Place, OpenItem] = {}
        self._ends: list[tuple[int, int, int]] = []
        """Time, partition and offset of items that will come back."""
        self._due: list[tuple[int, int]] = []
        """Offset and partition of items that have come back."""

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[OpenItem]:
        return iter(self._open.values())

    def get(self, place: Place) -> OpenItem | None:
        """The open item at the place; None if it is done or was never leased."""
        return self._open.get(place)

    def add(self, item: OpenItem) -> None:
        """Adds an item that is not open yet."""
        self._open[item.place] = item
        self._expect(item)

    def remove(self, place: Place) -> OpenItem:
        """Ends an open item, and returns it."""
        return self._open.pop(place)

    def put_off(self, item: OpenItem, until_ms: int) -> None:
        """The open item comes back at another time."""
        item.until_ms = until_ms
        self._expect(item)

    def next_due(self, now_ms: int) -> OpenItem | None:
        """The one with the lowest offset of those whose time is over. Put it off before the next call."""
        self._collect(now_ms)
        while self._due:
            offset, partition = self._due[0]
            item = self._open.get((partition, offset))
            if item is not None and item.until_ms <= now_ms:
                return item
            heapq.heappop(self._due)  # done, or put off: then it is among the ends
        return None

    def count_due(self, now_ms: int) -> int:
        """How many have come back; looks at every item."""
        return sum(item.until_ms <= now_ms for item in self)

    def guess_due(self, now_ms: int) -> int:
        """How many have come back, roughly: 0 only if none has. Does not look at every item."""
        end_ms = self.first_end_ms()
        return len(self._due) + (end_ms is not None and end_ms <= now_ms)

    def first_end_ms(self) -> int | None:
        """When the next item comes back; None if none will. Only of those that had not at the last call."""
        while self._ends:
            until_ms, partition, offset = self._ends[0]
            item = self._open.get((partition, offset))
            if item is not None and item.until_ms == until_ms:
                return until_ms
            heapq.heappop(self._ends)
        return None

    def _expect(self, item: OpenItem) -> None:
        heapq.heappush(self._ends, (item.until_ms, *item.place))
        # done and extended items leave entries behind, which are dropped together once they are the most
        if len(self._ends) > 2 * len(self._open) + 1000:
            self._ends = [(one.until_ms, *one.place) for one in self]
            heapq.heapify(self._ends)

    def _collect(self, now_ms: int) -> None:
        while self._ends and self._ends[0][0] <= now_ms:
            _, partition, offset = heapq.heappop(self._ends)
            item = self._open.get((partition, offset))
            if item is not None and item.until_ms <= now_ms:
                heapq.heappush(self._due, (offset, partition))
