"""An event loop whose clock jumps to the next timer instead of waiting: hours of tests in milliseconds.

For tests on in-memory fakes only: what waits for a socket or a thread would never be woken. A test in
which nothing will ever happen again fails at once instead of hanging.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _JumpingSelector(selectors.DefaultSelector):
    """Never sleeps: the time to wait passes on `now_s`."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> Any:
        events = super().select(0)
        if not events and timeout is None:
            raise RuntimeError("every task waits for something that nobody will do")
        if not events and timeout is not None:
            self.now_s += timeout
        return events


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop on virtual time, which begins at 0 s."""

    def __init__(self) -> None:
        self._virtual = _JumpingSelector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now_s


def in_virtual_time(test: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """What the coroutine function returns, run in a loop of its own on virtual time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(test())


async def until(reached: Callable[[], bool], within_s: float = 600.0) -> None:
    """Returns when `reached` is true; fails when it is not within so much virtual time."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + within_s
    while not reached():
        assert loop.time() < deadline_s, "it was not reached in time"
        await asyncio.sleep(0.01)
