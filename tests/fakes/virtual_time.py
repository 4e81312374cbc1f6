"""The one virtual clock: an event loop that jumps to its next timer, so hours pass in milliseconds.

Unit tests run on it by `@virtual_time`; the simulation also freezes and thaws processes. Each task and
timer belongs to the process in whose context it was made (`PROCESS`). Work of a frozen process waits until
it is thawed while time passes for the others, as after SIGSTOP.

Ready callbacks run in the order in which they became ready, timers by time and then by age. There is no wall
clock, socket or thread, so the same seed gives the same run. Use it with in-memory fakes only.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar, TypeVarTuple, Unpack

P = ParamSpec("P")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")

MAX_CALLS = 400_000
"""A simulated run takes some thousands of callbacks; one that takes this many never ends."""
MAX_UNIT_CALLS = 20_000_000
"""Unit tests poll through hours of virtual time."""

PROCESS: contextvars.ContextVar[str] = contextvars.ContextVar("process", default="")
"""The process to which the running code belongs; "" is the world outside all processes."""


class NoEnd(Exception):
    """The run never ends: every task waits, or tasks spin while no time passes."""


class _Call(asyncio.TimerHandle):
    """A callback waiting for its turn; leaner than asyncio's handle, which this loop never debugs."""

    __slots__ = ("args", "callback", "context", "is_cancelled", "when_s")

    def __init__(
        self, callback: Any, args: tuple[Any, ...], context: contextvars.Context | None, when_s: float = 0.0
    ) -> None:
        self.callback, self.args, self.when_s = callback, args, when_s
        self.context = contextvars.copy_context() if context is None else context
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True

    def cancelled(self) -> bool:
        return self.is_cancelled

    def when(self) -> float:
        return self.when_s


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs coroutines on virtual time, which begins at 0 s; `unhandled` collects errors that no task caught.

    It implements only what tasks, futures and timers ask of a loop.
    """

    def __init__(self, max_calls: int = MAX_CALLS) -> None:
        self.now_s = 0.0
        self.unhandled: list[str] = []
        self._max_calls = max_calls
        self._ready: deque[_Call] = deque()
        self._timers: list[tuple[float, int, _Call]] = []
        self._made = self._calls = 0
        self._frozen: dict[str, list[_Call]] = {}

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """The coroutine's result; other tasks may remain. Raises NoEnd."""
        self._calls = 0
        asyncio._set_running_loop(self)
        try:
            task = self.create_task(main)
            while not task.done():
                self._turn()
            result: T = task.result()
            return result
        finally:
            asyncio._set_running_loop(None)

    def freeze(self, process: str) -> None:
        """Nothing of the process runs until `thaw`."""
        self._frozen.setdefault(process, [])

    def thaw(self, process: str) -> None:
        """Resumes the process, first with what became due while it was frozen."""
        self._ready.extend(self._frozen.pop(process, ()))

    def is_frozen(self, process: str) -> bool:
        """Whether the process is frozen."""
        return process in self._frozen

    def _turn(self) -> None:
        ready, timers = self._ready, self._timers
        if not ready:
            while timers and timers[0][2].is_cancelled:
                heapq.heappop(timers)
            if not timers:
                raise NoEnd("every task waits and no timer is left")
            self.now_s = max(self.now_s, timers[0][0])
        while timers and timers[0][0] <= self.now_s:
            ready.append(heapq.heappop(timers)[2])
        self._calls += len(ready)
        if self._calls > self._max_calls:
            raise NoEnd(f"no end in sight, at {self.now_s:.3f} s")
        for _ in range(len(ready)):
            call = ready.popleft()
            if call.is_cancelled:
                continue
            if self._frozen and (process := call.context.get(PROCESS, "")) in self._frozen:
                self._frozen[process].append(call)
                continue
            try:
                call.context.run(call.callback, *call.args)
            except Exception as error:
                self.unhandled.append(repr(error))

    # what asyncio asks of a loop

    def time(self) -> float:
        return self.now_s

    def call_soon(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        call = _Call(callback, args, context)
        self._ready.append(call)
        return call

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.now_s + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        call = _Call(callback, args, context, when)
        self._made += 1
        heapq.heappush(self._timers, (when, self._made, call))
        return call

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: object = None, context: Any = None) -> asyncio.Task[Any]:
        return asyncio.Task(coro, loop=self, name=None if name is None else str(name), context=context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        whose = context.get("future") or context.get("task")
        self.unhandled.append(f"{context['message']}: {context.get('exception')!r} of {whose!r}")

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return asyncio._get_running_loop() is self

    def is_closed(self) -> bool:
        return not self.is_running()


def in_virtual_time(test: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """The coroutine function's result, run on a loop on virtual time; tasks it leaves behind are cancelled.

    Fails with NoEnd instead of hanging when nothing will ever happen again, and when a callback failed.
    """
    loop = VirtualLoop(MAX_UNIT_CALLS)
    try:
        return loop.run(test())
    finally:
        loop.run(cancel_all(asyncio.all_tasks(loop)))
        assert loop.unhandled == []


def virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Decorates a coroutine test: pytest runs it by `in_virtual_time`."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        in_virtual_time(lambda: test(*args, **kwargs))

    return run


async def cancel_all(tasks: set[asyncio.Task[Any]]) -> None:
    """Ends these tasks."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def until(reached: Callable[[], bool], within_s: float = 600.0) -> None:
    """Returns when `reached` is true; fails if it is not within that much virtual time."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + within_s
    while not reached():
        assert loop.time() < deadline_s, "it was not reached in time"
        await asyncio.sleep(0.01)
