"""The ids that a queue knows: whether an item is a repeat of another.

An open item holds its id; an acked one leaves it behind for a while. Each id is known with the place of its
item, so that a seek can forget it together with the item. Used by fold.py.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import NamedTuple

from services.queue.core.open_items import Place

MAX_ACKED = 50_000
"""Ids of acked items that are known at most, the newest."""


class AckedId(NamedTuple):
    """The id of an acked item, and the append time through which it is known."""

    id: str
    partition: int
    offset: int
    known_until_ms: int


class KnownIds:
    """Ids by what is known of them; `acked` in the order of the acks."""

    def __init__(self) -> None:
        self._held: dict[str, Place] = {}
        # a plain dict looks for its first entry behind all that were dropped: 70 µs an ack on average
        self._acked = OrderedDict[str, AckedId]()

    def __len__(self) -> int:
        return len(self._held) + len(self._acked)

    @property
    def acked(self) -> Iterable[AckedId]:
        """The ids of acked items, the oldest first."""
        return self._acked.values()

    def is_repeat(self, id_: str, now_ms: int) -> bool:
        """Whether another item holds the id, or has left it behind."""
        left = self._acked.get(id_)
        return id_ in self._held or (left is not None and now_ms <= left.known_until_ms)

    def hold(self, id_: str, place: Place) -> None:
        """The open item at the place has the id, which is no repeat."""
        self._acked.pop(id_, None)  # expired, but not the oldest
        self._held[id_] = place

    def forget(self, id_: str) -> None:
        """The open item that had the id is done and leaves nothing behind."""
        self._held.pop(id_, None)

    def leave(self, acked: AckedId) -> None:
        """The open item that had the id is acked."""
        self.forget(acked.id)
        # to the end of the order, wherever an expired entry stood
        self._acked.pop(acked.id, None)
        self._acked[acked.id] = acked
        if len(self._acked) > MAX_ACKED:
            del self._acked[next(iter(self._acked))]

    def prune(self, now_ms: int) -> None:
        """Drops what is no longer known, as far as it is the oldest."""
        while self._acked:
            oldest = next(iter(self._acked.values()))
            if now_ms <= oldest.known_until_ms:
                break
            del self._acked[oldest.id]

    def forget_items(self, is_forgotten: Callable[[Place], bool]) -> None:
        """Forgets the ids that these items hold or have left behind."""
        self._held = {id_: place for id_, place in self._held.items() if not is_forgotten(place)}
        self._acked = OrderedDict(
            (one.id, one) for one in self._acked.values() if not is_forgotten((one.partition, one.offset))
        )
