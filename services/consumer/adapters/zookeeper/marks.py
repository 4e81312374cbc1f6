"""What a group's mirror must read again: marked by watches, by doubts, and by time.

Used by `group_mirror.py`, which reads what is marked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from itertools import islice

RELIST_S = 5.0
"""How often the lists are read without a watch."""
SLICE = 32
"""How many single znodes are read each time: bounded, however many streams there are, and cheap for an idle
member. The lists show claims that come and go; this finds what a lost watch has hidden besides."""


class Marks:
    """The marks; `changed` is set with each one that a watch makes."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self.members: set[str] = set()
        self.claims: set[int] = set()
        self.nodes: set[int] = set()
        self.parts: set[str] = set()
        """`lists`, `wishes`."""
        self.renew()

    def renew(self) -> None:
        """Everything must be read, as in a new ZooKeeper session."""
        self.members.clear()
        self.claims.clear()
        self.nodes.clear()
        self.parts |= {"lists", "wishes"}
        self._relist_at_s = 0.0
        self._turn = 0

    def age(
        self, now_s: float, members: Collection[str], claims: Collection[int], nodes: Collection[int]
    ) -> None:
        """Marks the lists, the members and a slice of the rest every few seconds: a watch may be lost."""
        if now_s < self._relist_at_s:
            return
        self._relist_at_s = now_s + RELIST_S
        self.parts |= {"lists", "wishes"}
        self.members |= set(members)
        # a slice each time: every znode gets its turn, and the cost of one view stays bounded
        streams = sorted({*claims, *nodes})
        if streams:
            self._turn %= len(streams)
            for stream in islice(streams, self._turn, self._turn + SLICE):
                (self.claims if stream in claims else self.nodes).add(stream)
            self._turn += SLICE

    def on_lists(self, path: str) -> None:
        """A member has come or gone, or a claim has."""
        self.parts.add("lists")
        self.changed.set()

    def on_wishes(self, path: str) -> None:
        """The pins or the pause have changed."""
        self.parts.add("wishes")
        self.changed.set()

    def on_member(self, path: str) -> None:
        """A member's node has changed."""
        self.members.add(path.rpartition("/")[2])
        self.changed.set()

    def on_claim(self, path: str) -> None:
        """A claim has changed."""
        self.claims.add(int(path.rpartition("/")[2]))
        self.changed.set()

    def on_node(self, path: str) -> None:
        """A stream's node has changed."""
        self.nodes.add(int(path.rpartition("/")[2]))
        self.changed.set()
