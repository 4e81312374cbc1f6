"""Runs long work (`core/slices.py`) on the event loop, in slices between which other tasks run.

Not in a thread: one call into C holds the interpreter's lock for as long as it takes, in a thread as well,
and the stream whose state is copied would change at any moment instead of between two slices.
"""

from __future__ import annotations

import asyncio
from typing import TypeVar

from services.consumer.core.slices import Steps

T = TypeVar("T")


TURN_S = 0.005
"""How long slices may follow one another before others run: each pass over a busy loop costs time."""


async def in_slices(steps: Steps[T]) -> T:
    """The result of the work."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        if loop.time() - began_s >= TURN_S:
            await asyncio.sleep(0)
            began_s = loop.time()
