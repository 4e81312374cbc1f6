"""An event loop on virtual time whose processes can be frozen and thawed, and which is cheap and exact.

Every task and timer belongs to the process in whose context it was made (`PROCESS`). What a frozen process
has to do waits until it is thawed, while time passes for everybody else: SIGSTOP, with all that follows
from it. Ready callbacks run in the order in which they became ready, timers by time, then by order of
their making; no wall clock, no sockets, no threads: the same seed gives the same run.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, TypeVarTuple, Unpack

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

MOST_CALLS = 400_000
"""A run takes some thousands; one that takes so many will never end."""

PROCESS: contextvars.ContextVar[str] = contextvars.ContextVar("process", default="")
"""The process that the running code belongs to; "" is the world outside of all processes."""


class NoEnd(Exception):
    """The run will never come to an end: everybody waits, or something goes on without time passing."""


class _Call(asyncio.TimerHandle):
    """A callback that waits for its turn; leaner than asyncio's own, and it says whose it is."""

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


class SimulationLoop(asyncio.BaseEventLoop):
    """Runs coroutines on virtual time, which begins at 0 s; `unhandled` collects what nobody caught.

    Of asyncio's loop it keeps no more than the type: what tasks, futures and timers ask of one is here.
    """

    def __init__(self) -> None:
        self.now_s = 0.0
        self.unhandled: list[str] = []
        self._ready: deque[_Call] = deque()
        self._timers: list[tuple[float, int, _Call]] = []
        self._made = self._calls = 0
        self._frozen: dict[str, list[_Call]] = {}

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """What the coroutine returns; other tasks may be left over. Raises NoEnd."""
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
        """From now on nothing of the process runs."""
        self._frozen.setdefault(process, [])

    def thaw(self, process: str) -> None:
        """The process goes on, first with what became due in the meantime."""
        self._ready.extend(self._frozen.pop(process, ()))

    def is_frozen(self, process: str) -> bool:
        """Whether nothing of the process runs at present."""
        return process in self._frozen

    def _turn(self) -> None:
        ready, timers = self._ready, self._timers
        if not ready:
            while timers and timers[0][2].is_cancelled:
                heapq.heappop(timers)
            if not timers:
                raise NoEnd("every task waits for something that nobody will do")
            self.now_s = max(self.now_s, timers[0][0])
        while timers and timers[0][0] <= self.now_s:
            ready.append(heapq.heappop(timers)[2])
        self._calls += len(ready)
        if self._calls > MOST_CALLS:
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

    def is_closed(self) -> bool:
        return asyncio._get_running_loop() is not self
