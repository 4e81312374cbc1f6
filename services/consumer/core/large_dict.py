"""Dicts of up to hundreds of thousands of entries, which are freed in slices, like all long work.

Python frees what a dict holds in one step, as soon as its last reference goes. That takes 6 ms for a stream
of 20,000 sessions and 30 ms for one of 100,000, and many may go in one turn: hints expire together.
Meanwhile no stream of the member moves. The last reference may go anywhere: a worker ends, a handover is
refused, a hint expires, a load is cancelled. So the dict itself notices it, and puts itself aside in
`LargeDict.discarded`. `emptying` frees what is there; `member/garbage.py` runs it.
"""

from __future__ import annotations

from collections import deque
from typing import Any, ClassVar, TypeVar

from services.consumer.core.slices import Steps

K = TypeVar("K")
V = TypeVar("V")

FREED_AT_ONCE = 100
"""How many entries one slice frees; a dict of no more is freed at once. Few, because a session may hold
thousands of fragments."""


class LargeDict(dict[K, V]):
    """A dict that outlives its last reference until its entries are freed, if there are many."""

    __slots__ = ()

    discarded: ClassVar[deque[dict[Any, Any]] | None] = None
    """Where dicts wait to be emptied. None in a process that empties none: there they are freed at once."""

    def __del__(self) -> None:
        discard(self)


def discard(entries: dict[Any, Any]) -> None:
    """Puts a dict aside to be emptied if it is large. Nobody else may refer to it."""
    if len(entries) > FREED_AT_ONCE and LargeDict.discarded is not None:
        LargeDict.discarded.append(entries)


def emptying(discarded: deque[dict[Any, Any]]) -> Steps[None]:
    """Frees what the dicts hold, and the dicts, in slices of `FREED_AT_ONCE` entries."""
    while discarded:
        entries = discarded[0]
        while entries:
            for _ in range(min(len(entries), FREED_AT_ONCE)):
                entries.popitem()
            yield
        discarded.popleft()
