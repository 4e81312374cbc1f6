"""Answers the copies of streams one after the other: the pause of a stream begins with that answer.

The shell around `core/handover/turns.py`. The routes and the in-memory peers wait for a turn before they
answer a copy; the workers end it when the stream is open, the hint store when it will not come.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from services.consumer.core.handover.rules import Offer
from services.consumer.core.handover.turns import Turns


class Arrivals:
    """The streams on their way to this member; `now_s` is the clock of their turns."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.turns = Turns()
        self._now_s = now_s
        self._answers: dict[int, asyncio.Future[None]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<Arrivals {self.turns!r}>"

    def turn_of(self, offer: Offer) -> asyncio.Future[None]:
        """Done when it is the turn of the offered stream, whose copy is here, to stand still."""
        answer = asyncio.get_running_loop().create_future()
        self._answer(offer.stream)  # of an earlier copy, which has no reader any more
        self._answers[offer.stream] = answer
        self.turns.ask(
            offer.stream,
            donor=offer.donor,
            left=offer.left,
            within_ms=offer.within_ms,
            now_s=self._now_s(),
        )
        self._look()
        return answer

    def end(self, stream: int) -> None:
        """The stream is open here, or will not come."""
        self.turns.end(stream, self._now_s())
        self._answer(stream)
        self._look()

    def _look(self) -> None:
        for stream in self.turns.due(self._now_s()):
            self._answer(stream)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        next_s = self.turns.next_s()
        if next_s is not None:
            # never 0: a timer may fire a moment before its time
            wait_s = max(0.01, next_s - self._now_s())
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._look)

    def _answer(self, stream: int) -> None:
        answer = self._answers.pop(stream, None)
        if answer is not None and not answer.done():
            answer.set_result(None)
