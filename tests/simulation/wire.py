"""A connection between two processes: requests and answers travel, and `Weather` decides their fate.

A call is a request that takes effect at the other end, in the context of that end, and an answer that comes
back. Each takes its time; one direction can be cut, single messages are lost, late or repeated. A message
arrives even if its sender was frozen, timed out or died meanwhile. With `in_order`, messages of one direction
never overtake each other, as on one TCP connection.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from shared.errors import Unavailable
from tests.fakes.virtual_time import PROCESS, VirtualLoop

T = TypeVar("T")

QUICK_S = 0.004
SLOW_S = 0.3
LATE_S = 4.0
"""How late messages may be: long after their senders timed out."""
BREAKS = 0.3
"""Share of lost messages whose loss shows soon because the connection broke."""
WORLD = contextvars.Context()
"""The context of what belongs to no process."""


@dataclass(slots=True)
class Weather:
    """The fate of messages: two directions that can be cut, and the shares of other faults."""

    cut_requests: bool = False
    cut_answers: bool = False
    slow: float = 0.0
    lost_request: float = 0.0
    lost_answer: float = 0.0
    late: float = 0.0
    repeated: float = 0.0
    garbled: float = 0.0

    def clear(self) -> None:
        """From now on every message arrives, once and soon."""
        self.cut_requests = self.cut_answers = False
        self.slow = self.lost_request = self.lost_answer = self.late = self.repeated = self.garbled = 0.0


@dataclass(slots=True)
class _Request(Generic[T]):
    """One call: what it does there, where the answer goes, in whose context, until when one waits for it."""

    effect: Callable[[], T | asyncio.Future[T]]
    answer: asyncio.Future[T]
    context: contextvars.Context
    until_s: float


class Wire:
    """One process' way to one other end; `dead` once that process is."""

    def __init__(
        self,
        loop: VirtualLoop,
        rng: random.Random,
        weather: Weather,
        unavailable: Callable[[str], Unavailable],
        *,
        in_order: bool = False,
    ) -> None:
        self.dead = False
        self.weather = weather
        self._loop = loop
        self._rng = rng
        self._unavailable = unavailable
        self._in_order = in_order
        self._arrives_s = self._returns_s = 0.0

    async def call(
        self,
        effect: Callable[[], T | asyncio.Future[T]],
        patience_s: float,
        context: contextvars.Context,
    ) -> T:
        """What `effect` gives at the other end, or the error that it raises there.

        Raises what `unavailable` makes when nothing comes back within `patience_s`. `effect` may give a
        future: then the answer waits for it.
        """
        loop, weather, rng = self._loop, self.weather, self._rng
        if self.dead:
            raise self._unavailable("this process is dead")
        answer: asyncio.Future[T] = loop.create_future()
        call = _Request(effect, answer, context, loop.now_s + patience_s)
        if weather.cut_requests or (weather.lost_request and rng.random() < weather.lost_request):
            self._give_up_later(call, breaks=True)
            return await answer
        late = bool(weather.late) and rng.random() < weather.late
        if late or PROCESS in context:  # a process may be frozen when the request arrives
            self._give_up_later(call)
        at_s = self._arrival(late=late)
        loop.call_at(at_s, self._arrive, call, context=context)
        if weather.repeated and rng.random() < weather.repeated:
            again = _Request(effect, loop.create_future(), context, at_s)
            again.answer.cancel()  # no caller waits for it
            loop.call_at(at_s + rng.random() * LATE_S, self._arrive, again, context=context)
        return await answer

    def push(self, message: Callable[[], None], context: contextvars.Context) -> None:
        """Pushes a message back without a request; it is lost where answers are."""
        if not self.dead and not self._is_answer_lost():
            self._loop.call_at(self._return(), message, context=context)

    def _arrive(self, call: _Request[Any]) -> None:
        """At the other end: takes effect, and sends the answer back."""
        result: Any = None
        error: BaseException | None = None
        try:
            result = call.effect()
        except Exception as raised:
            error = raised
        if isinstance(result, asyncio.Future):
            result.add_done_callback(partial(self._answer_later, call), context=call.context)
        else:
            self._send_back(call, result, error)

    def _answer_later(self, call: _Request[Any], done: asyncio.Future[Any]) -> None:
        if not done.cancelled():
            error = done.exception()
            self._send_back(call, None if error else done.result(), error)

    def _send_back(self, call: _Request[Any], result: Any, error: BaseException | None) -> None:
        if call.answer.done():
            return
        if self._is_answer_lost():
            self._give_up_later(call, breaks=True)
        else:
            self._loop.call_at(self._return(), _settle, call.answer, result, error, context=WORLD)

    def _is_answer_lost(self) -> bool:
        weather = self.weather
        return weather.cut_answers or bool(weather.lost_answer and self._rng.random() < weather.lost_answer)

    def _give_up_later(self, call: _Request[Any], *, breaks: bool = False) -> None:
        """Fails the call when its patience ends, or soon where a broken connection shows the loss."""
        at_s, now_s = call.until_s, self._loop.now_s
        if breaks and self._rng.random() < BREAKS:
            at_s = now_s + (at_s - now_s) * 0.1 * self._rng.random()
        error = self._unavailable("no answer")
        self._loop.call_at(max(at_s, now_s), _settle, call.answer, None, error, context=WORLD)

    def _arrival(self, *, late: bool) -> float:
        at_s = self._loop.now_s + self._travel_s()
        if late:
            return at_s + self._rng.random() * LATE_S
        if self._in_order:
            at_s = self._arrives_s = max(self._arrives_s, at_s)
        return at_s

    def _return(self) -> float:
        at_s = self._loop.now_s + self._travel_s()
        if self._in_order:
            at_s = self._returns_s = max(self._returns_s, at_s)
        return at_s

    def _travel_s(self) -> float:
        rng, slow = self._rng, self.weather.slow
        return rng.random() * (SLOW_S if slow and rng.random() < slow else QUICK_S)


def _settle(answer: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if answer.done():
        return
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(result)
