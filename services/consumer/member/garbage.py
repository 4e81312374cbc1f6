"""Keeps garbage collections short, and frees large state in slices, however many sessions are open
(docs/adr/0026).

Sessions hold no reference cycles, so reference counts free them. A collection of the oldest generation would
look at each of them and at all their fragments for nothing: 0.3 s for 400,000 sessions, in which no stream
runs. So it never comes by itself; `collect_when_small` runs it while little is open. And reference counts
would free a whole stream in one step, so `free_discarded` does it in slices (`core/large_dict.py`). Used by
`__main__.py`.
"""

from __future__ import annotations

import asyncio
import gc
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from services.consumer.core.large_dict import LargeDict, emptying
from services.consumer.member.member import Member
from services.consumer.stream.slices import in_slices

YOUNG = 5_000
"""New objects between two collections of the youngest generation. Every second one also looks at those that
survived the first, so the longest takes 5 to 15 ms."""
NEVER = 1_000_000_000
COLLECT_EVERY_S = 60.0
FEW = 50_000
"""With fewer objects, a full collection takes less than 40 ms."""
FREE_EVERY_S = 0.5
"""How long discarded state may wait until it is freed."""
TYPICAL_FRAGMENT_BYTES = 256


def count_objects(members: Iterable[Member]) -> int:
    """About how many objects a collection would look at for the state of these members: that of the streams
    that run, that of copies and hints, and what is discarded but not freed yet.
    """
    sizes = [(sum(map(len, LargeDict.discarded or ())), 0)]
    for member in members:
        cores = [worker.core for worker in member.workers if worker.core is not None]
        sizes += ((core.open_sessions + core.covered_keys, core.state_bytes) for core in cores)
        sizes += member.hint_store.sizes
    return sum(entries + size // TYPICAL_FRAGMENT_BYTES for entries, size in sizes)


def keep_collections_short() -> None:
    """Takes what was imported out of all collections, and the oldest generation out of the automatic ones."""
    gc.freeze()
    gc.set_threshold(YOUNG, 1, NEVER)


async def collect_when_small(count: Callable[[], int]) -> None:
    """Collects everything each minute while `count()`, about how many objects the state has, is small.

    So cycles that outlived the young generations (of closed clients, say) are freed as well. Runs until it is
    cancelled.
    """
    while True:
        await asyncio.sleep(COLLECT_EVERY_S)
        if count() < FEW:
            gc.collect()


async def free_discarded() -> None:
    """Frees the tables of streams, copies and checkpoints that nobody refers to any more, in slices.

    Runs until it is cancelled; from then on they are freed at once.
    """
    LargeDict.discarded = discarded = deque[dict[Any, Any]]()
    try:
        while True:
            await in_slices(emptying(discarded))
            await asyncio.sleep(FREE_EVERY_S)
    finally:
        LargeDict.discarded = None
