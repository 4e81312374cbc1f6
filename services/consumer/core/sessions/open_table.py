"""The open sessions of a stream by their keys, in order of their last fragments.

An `OrderedDict` does this, but Python rebuilds one that outgrows its room in a single call: 30 to 70 ms at
350,000 keys, in which all streams of a member stand still. So a table has one of at most `FIRST` sessions,
and `PARTS` others, chosen by checksums of the keys, for sessions that open while the first is full. A session
stays where it was put. Each dict is in order of last fragments, so the order of all is that in which they
merge. It depends on offsets alone, as everything must that a fold makes of a log.

The fold (`fold.py`) looks into `first` itself, because a call for each fragment would cost 5 %. Checkpoints
and the copies of a handover hold the same tables.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import chain
from operator import attrgetter
from zlib import crc32

from services.consumer.core.large_dict import discard
from services.consumer.core.sessions.state import OpenSession

FIRST = 80_000
"""How many sessions `first` takes: rebuilding it takes 7 ms. Smaller streams need no other part."""
PARTS = 64
"""Rebuilding one takes 1 ms while 400,000 sessions are open, and 3 ms while a million are."""
CLASSES = 1024
"""Into how many classes the checksums of keys fall, each of which belongs to a part."""

Part = OrderedDict[str, OpenSession]


class OpenTable:
    """Key → session, in order of last fragments: each session's `last_offset` is above those before it.

    Only a replay disturbs the order, and restores it by its end (`assembly.py`).
    """

    __slots__ = ("_all", "_by_class", "first")

    def __init__(self, sessions: Iterable[OpenSession] = ()) -> None:
        self.first = Part()
        self._all = [self.first]
        self._by_class: list[Part] = []
        for session in sessions:
            self.add(session)

    def __repr__(self) -> str:
        return f"<OpenTable of {len(self)} sessions>"

    def __del__(self) -> None:
        for part in self._all:
            discard(part)

    def __len__(self) -> int:
        return sum(map(len, self._all))

    def __iter__(self) -> Iterator[str]:
        """The keys, in order."""
        for session in self.values():
            yield session.key

    def __contains__(self, key: str) -> bool:
        return self.find(key)[1] is not None

    def __getitem__(self, key: str) -> OpenSession:
        return self.find(key)[0][key]

    def find(self, key: str) -> tuple[Part, OpenSession | None]:
        """The dict that holds the key's session, and the session; if it has none, the dict to add one to."""
        session = self.first.get(key)
        return self.find_beyond(key) if session is None else (self.first, session)

    def find_beyond(self, key: str) -> tuple[Part, OpenSession | None]:
        """What `find` returns, for a key that is not in `first`."""
        first = self.first
        if not self._by_class:
            if len(first) < FIRST:
                return first, None
            self._divide()
        # not by the lowest bits, which are alike for all keys of a stream (shared/model/routing.py)
        part = self._by_class[crc32(key.encode()) >> 16 & CLASSES - 1]
        session = part.get(key)
        return (first if session is None and len(first) < FIRST else part), session

    def get(self, key: str) -> OpenSession | None:
        """The key's session, if it has one."""
        return self.find(key)[1]

    def add(self, session: OpenSession) -> None:
        """Adds the session at the end, for a key that has none."""
        self.find(session.key)[0][session.key] = session

    def move_to_end(self, key: str) -> None:
        """Makes the key's session the last; it must have one."""
        self.find(key)[0].move_to_end(key)

    def pop(self, key: str) -> OpenSession | None:
        """Removes and returns the key's session, if it has one."""
        session = self.first.pop(key, None)
        return self.find_beyond(key)[0].pop(key, None) if session is None else session

    def values(self) -> Iterator[OpenSession]:
        """The sessions, in order. Each costs 0.5 to 1 µs if there are several parts."""
        yield from in_order(self.runs())

    def newest_first(self) -> Iterator[OpenSession]:
        """The sessions, the last one first."""
        yield from in_order((reversed(part.values()) for part in self._all), reverse=True)

    def oldest(self) -> OpenSession | None:
        """The first session."""
        return next(self.values(), None)

    def runs(self) -> list[Iterable[OpenSession]]:
        """All sessions, in several iterables that are each in order: `in_order` merges them."""
        return [part.values() for part in self._all]

    def keys(self) -> Iterator[str]:
        """The keys in an order that is the same in every process, though not that of the sessions.

        They are those of the plain dicts within: an OrderedDict lists its own order 10 times as slowly.
        """
        return chain.from_iterable(dict.keys(part) for part in self._all)

    def unordered(self) -> Iterator[OpenSession]:
        """The sessions, in the order of `keys` and as fast."""
        return chain.from_iterable(dict.values(part) for part in self._all)

    def _divide(self) -> None:
        parts = [Part() for _ in range(PARTS)]
        self._all += parts
        # Dicts grow by doubling, and equal parts would all do so at nearly the same time. So the last part
        # gets twice as many classes as the first, and those between in proportion.
        self._by_class = [parts[int(PARTS * math.log2(1 + n / CLASSES))] for n in range(CLASSES)]


def in_order(runs: Iterable[Iterable[OpenSession]], *, reverse: bool = False) -> Iterator[OpenSession]:
    """The sessions of runs that are each in order of last fragments, in that order."""
    return merge(*runs, key=attrgetter("last_offset"), reverse=reverse)
