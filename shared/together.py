"""Awaits several calls at once, so that no failure of a call hides the caller's own cancellation.

When a call fails and its caller is cancelled in the same turn of the loop, `asyncio.gather` raises the
failure, and so does `asyncio.TaskGroup` before Python 3.13. The cancellation is lost: a caller that catches
the failure and asks again never ends. `asyncio.wait` raises no failure, so the cancellation always arrives.
Why: docs/adr/0053-await-calls-together.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import Any, TypeVar

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")


async def together(calls: Iterable[Awaitable[T]]) -> list[T]:
    """The results of the calls, in their order. The first failure is raised, and cancels the other calls."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        if tasks:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        return [task.result() for task in tasks if task.done()]
    except (Exception, asyncio.CancelledError):
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


async def both(one: Awaitable[A], other: Awaitable[B]) -> tuple[A, B]:
    """The results of two calls of different kinds; see `together`."""
    calls: tuple[Awaitable[Any], Awaitable[Any]] = one, other
    first, second = await together(calls)
    return first, second
