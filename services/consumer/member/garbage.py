"""Keeps Python's garbage collections short, however many sessions are open (docs/adr/0026).

Sessions hold no reference cycles, so reference counts free them. A collection of the oldest generation would
look at each of them and at all their fragments for nothing: 0.3 s for 400,000 sessions, in which no stream
runs. So it never comes by itself; `collect_when_small` runs it while little is open. Used by `__main__.py`.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterable

from services.consumer.member.member import Member

YOUNG = 5_000
"""New objects between two collections of the youngest generation. Every second one also looks at those that
survived the first, so the longest takes 5 to 15 ms."""
NEVER = 1_000_000_000
COLLECT_EVERY_S = 60.0
FEW = 50_000
"""With fewer objects, a full collection takes less than 40 ms."""


TYPICAL_FRAGMENT_BYTES = 256


def count_objects(members: Iterable[Member]) -> int:
    """About how many objects a collection would look at for the state of these members' streams."""
    cores = [worker.core for member in members for worker in member.workers if worker.core is not None]
    return sum(
        core.open_sessions + core.covered_keys + core.state_bytes // TYPICAL_FRAGMENT_BYTES for core in cores
    )


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
