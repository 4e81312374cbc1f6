"""The wait that all tests on real servers share: poll with a deadline; never sleep and hope."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, TypeVar, overload

T = TypeVar("T")

DEADLINE_S = 300.0
POLL_S = 0.03


@overload
async def until(
    reached: Callable[[], Awaitable[T]], describe: Callable[[], object] = ..., within_s: float = ...
) -> T: ...


@overload
async def until(
    reached: Callable[[], T], describe: Callable[[], object] = ..., within_s: float = ...
) -> T: ...


async def until(
    reached: Callable[[], Any],
    describe: Callable[[], object] = lambda: "it was not reached in time",
    within_s: float = DEADLINE_S,
) -> Any:
    """The first true result of `reached`, a function or a coroutine function; fails at the deadline with
    `describe()`."""
    deadline = time.monotonic() + within_s
    while True:
        found = reached()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return found
        assert time.monotonic() < deadline, describe()
        await asyncio.sleep(POLL_S)


@contextlib.asynccontextmanager
async def running(loop: Coroutine[Any, Any, object]) -> AsyncIterator[None]:
    """Runs a loop as a task for the block."""
    task = asyncio.create_task(loop)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})
