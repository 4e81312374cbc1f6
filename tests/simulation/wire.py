"""A way between two processes: requests and answers travel, and on the way everything happens to them.

A call is a request that takes effect at the other end, in the context of that end, and an answer that comes
back. Each takes its time; one direction can be cut, single messages are lost, late, or repeated (`Weather`).
What was sent arrives even if its sender has been frozen, has given up or has died since. With `in_order`
messages of one direction never overtake each other, as on one TCP connection.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from shared.errors import Unavailable
from tests.simulation.loop import SimulationLoop

T = TypeVar("T")

QUICK_S = 0.004
SLOW_S = 0.3
LATE_S = 4.0
"""Late messages arrive up to so much later: long after their senders have given up."""


@dataclass(slots=True)
class Weather:
    """What happens to messages: two directions that can be cut, and shares of messages."""

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


class Wire:
    """One process' way to one other end; `dead` once that process is."""

    def __init__(
        self,
        loop: SimulationLoop,
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

        Raises what `unavailable` makes when nothing has come back after `patience_s`, or sooner, as a
        broken connection does. `effect` may give a future: then the answer waits for it.
        """
        loop, weather, rng = self._loop, self.weather, self._rng
        if self.dead:
            raise self._unavailable("this process is dead")
        answer: asyncio.Future[T] = loop.create_future()
        lost = weather.cut_requests or (weather.lost_request and rng.random() < weather.lost_request)
        if not lost:
            late = bool(weather.late) and rng.random() < weather.late
            at_s = self._arrival(late=late)
            loop.call_at(at_s, self._arrive, effect, answer, context, context=context)
            if weather.repeated and rng.random() < weather.repeated:
                again_s = at_s + rng.random() * LATE_S
                loop.call_at(again_s, self._arrive, effect, None, context, context=context)
        elif rng.random() < 0.3:
            patience_s *= 0.1 * rng.random()  # the connection broke, instead of saying nothing
        giving_up = loop.call_later(patience_s, self._give_up, answer)
        try:
            return await answer
        finally:
            giving_up.cancel()

    def tell(self, message: Callable[[], None], context: contextvars.Context) -> None:
        """Sends a message back without having been asked; it is lost where answers are."""
        if not self.dead and not self._is_answer_lost():
            self._loop.call_at(self._return(), message, context=context)

    def _arrive(
        self,
        effect: Callable[[], T | asyncio.Future[T]],
        answer: asyncio.Future[T] | None,
        context: contextvars.Context,
    ) -> None:
        result: Any = None
        error: Exception | None = None
        try:
            result = effect()
        except Exception as raised:
            error = raised
        if answer is None or answer.done():
            return
        if isinstance(result, asyncio.Future):
            result.add_done_callback(lambda done: self._answer(answer, done), context=context)
        else:
            self._send_back(answer, result, error)

    def _answer(self, answer: asyncio.Future[T], done: asyncio.Future[T]) -> None:
        if not done.cancelled():
            error = done.exception()
            self._send_back(answer, None if error else done.result(), error)

    def _send_back(self, answer: asyncio.Future[T], result: Any, error: BaseException | None) -> None:
        if not self._is_answer_lost():
            self._loop.call_at(self._return(), _settle, answer, result, error)

    def _is_answer_lost(self) -> bool:
        weather = self.weather
        return weather.cut_answers or bool(weather.lost_answer and self._rng.random() < weather.lost_answer)

    def _give_up(self, answer: asyncio.Future[Any]) -> None:
        if not answer.done():
            answer.set_exception(self._unavailable("no answer"))

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
