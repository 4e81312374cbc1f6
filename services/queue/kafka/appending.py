"""Appends items to a queue's topic, and finds out what becomes of each. Used by items.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from services.queue.core.items import ItemRecord, headers_of
from services.queue.ports import Unstored
from shared.kafka.record import Partition, Record
from shared.kafka.send.outcome import Delivery, Loss
from shared.kafka.send.sender import Sender

REFUSED_FOR_GOOD: Final = frozenset({10, 18, 32, 87})
"""Error codes: the record is too large, its time is wrong, or a rule of the topic forbids it."""


class _Fate(Delivery):
    """What has become of appended items."""

    def __init__(self) -> None:
        super().__init__()
        self.unsure: list[int] = []
        self.refused: list[int] = []

    def lost(self, indexes: Sequence[int], loss: Loss) -> None:
        is_refused = loss.code in REFUSED_FOR_GOOD and not loss.is_unknown
        (self.refused if is_refused else self.unsure).extend(indexes)
        super().lost(indexes, loss)


class ItemAppender:
    """Appends to the partitions of a topic in turn."""

    def __init__(self, sender: Sender, topic: str, partitions: int) -> None:
        self._sender, self._topic, self._partitions = sender, topic, partitions
        self._turn = 0

    def __repr__(self) -> str:
        return f"<ItemAppender to {self._topic}>"

    async def append(self, items: Sequence[ItemRecord]) -> Unstored:
        """See `ItemLog`. All go to one partition, in order; the next call's go to the next one."""
        self._turn = (self._turn + 1) % self._partitions
        place = self._topic, self._turn
        fate = await self._send(place, items, range(len(items)))
        refused = fate.refused
        if len(items) > 1:  # a batch is refused as a whole, for one of its records
            alone = [await self._send(place, items, [index]) for index in refused]
            refused = [index for one in alone for index in one.refused]
            fate.unsure += [index for one in alone for index in one.unsure]
        return Unstored(sorted(fate.unsure), refused)

    async def _send(self, place: Partition, items: Sequence[ItemRecord], indexes: Sequence[int]) -> _Fate:
        records: list[Record] = [(None, items[n].value, headers_of(items[n])) for n in indexes]
        fate = _Fate()
        fate.expect(self._sender.add(place, records, indexes, fate))
        await fate.done
        return fate
