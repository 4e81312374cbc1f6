"""Items that were read and may be asked for soon: bounded for each queue, and for all queues of a worker.

When there is no room for all, the queue that has most gives up its oldest ones first, so a busy queue cannot
take everything from the others. What was given up is read again from Kafka. Used by items.py.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from services.queue.core.items import ItemRecord
from services.queue.core.open_items import Place

QUEUE_BYTES: Final = 24 * 1024 * 1024
AHEAD_BYTES: Final = 8 * 1024 * 1024
"""Of a queue's items that were never leased: what comes next."""
MAX_BYTES: Final = 96 * 1024 * 1024
"""Of all queues."""


class ItemCaches:
    """The caches of a worker's queues, which hold at most `max_bytes` together."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self.bytes = 0
        self.max_bytes = max_bytes
        self.in_use: set[ItemCache] = set()
        """Those that hold something."""

    def __repr__(self) -> str:
        return f"<ItemCaches: {self.bytes} of {self.max_bytes} bytes in {len(self.in_use)}>"

    @property
    def ahead_bytes(self) -> int:
        """How much one queue may read ahead: a third of its part, as the rest is for what was leased."""
        return min(AHEAD_BYTES, self.max_bytes // (3 * max(1, len(self.in_use))))

    def make_room(self) -> None:
        """Drops items until the others fit."""
        while self.bytes > self.max_bytes:
            max(self.in_use, key=lambda cache: cache.bytes).drop_oldest()


class ItemCache:
    """The items of one queue; `clear` it at the end."""

    def __init__(self, caches: ItemCaches) -> None:
        self.bytes = 0
        self._caches = caches
        # a plain dict looks for its first entry behind all that were dropped: 60 µs an item on average
        self._items = OrderedDict[Place, ItemRecord]()

    def __repr__(self) -> str:
        return f"<ItemCache: {len(self._items)} items, {self.bytes} bytes>"

    def __len__(self) -> int:
        return len(self._items)

    def get(self, place: Place) -> ItemRecord | None:
        """The item at the place, if it is here."""
        return self._items.get(place)

    def keep(self, place: Place, item: ItemRecord) -> None:
        """Keeps the item, in place of others if there is no room."""
        self._drop(place)
        self._items[place] = item
        self._count(item.size)
        while self.bytes > QUEUE_BYTES:
            self.drop_oldest()
        self._caches.make_room()

    def drop_oldest(self) -> None:
        """Drops the item that was kept first. Only if there is one."""
        self._drop(next(iter(self._items)))

    def clear(self) -> None:
        """Drops all."""
        self._count(-self.bytes)
        self._items.clear()

    def _drop(self, place: Place) -> None:
        if (item := self._items.pop(place, None)) is not None:
            self._count(-item.size)

    def _count(self, size: int) -> None:
        self.bytes += size
        self._caches.bytes += size
        (self._caches.in_use.add if self.bytes else self._caches.in_use.discard)(self)
