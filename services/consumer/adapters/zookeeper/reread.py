"""Reads what is marked as old, many at once, and keeps the marks exact.

A mark is removed *before* its znode is read, so that a change during the read marks it again; a read that
fails puts its mark back. Used by `group_mirror.py`, which has the marks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

IN_FLIGHT = 256
"""Concurrent reads. More of them would wait in a queue, and time out there."""

T = TypeVar("T", int, str)


async def reread(old: set[T], read: Callable[[T], Awaitable[None]]) -> None:
    """Reads everything in `old` and removes what was read; a watch may add it again meanwhile.

    Raises what `read` raises; what was not read is in `old` again then.
    """
    while old:
        some = sorted(old)[:IN_FLIGHT]
        unread = set(some)
        old -= unread
        try:
            results = await asyncio.gather(
                *(_read_one(x, read, unread) for x in some), return_exceptions=True
            )
        finally:
            old |= unread
        for failure in results:
            if failure is not None:
                raise failure


async def _read_one(what: T, read: Callable[[T], Awaitable[None]], unread: set[T]) -> None:
    await read(what)
    unread.discard(what)
