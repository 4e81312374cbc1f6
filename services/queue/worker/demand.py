"""Lets leases wait until there is something to lease: items, releases, and ends of leases wake them.

They are woken in the order of their arrival, as many as what there is could serve; each then appends its
command, and the fold decides who gets what. So this only saves commands that would get nothing. The clock
that it is asked with guesses the broker's time: too early costs a command, too late some milliseconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from shared.errors import BatonError

FIRST_PAUSE_S = 0.001
MAX_PAUSE_S = 0.1
"""Between leases that get nothing although a lease should be over: the broker's clock has gone back."""


class Demand:
    """`leasable()` estimates how many items could be leased now, `next_end_s()` when more come back."""

    def __init__(self, leasable: Callable[[], int], next_end_s: Callable[[], float | None]) -> None:
        self._leasable = leasable
        self._next_end_s = next_end_s
        self._waiting: dict[asyncio.Future[None], int] = {}
        self._served = 0
        """Items that leases on their way may get."""
        self._timer: asyncio.TimerHandle | None = None
        self._pause_s = FIRST_PAUSE_S
        self._ended: BatonError | None = None

    def __repr__(self) -> str:
        return f"<Demand: {len(self._waiting)} wait, {self._served} items are being leased>"

    @property
    def waiting(self) -> int:
        """How many leases wait."""
        return len(self._waiting)

    def suffices(self, count: int) -> bool:
        """Whether a lease of `count` items can surely be served now, before those that come later."""
        return not self._waiting and self._leasable() - self._served >= count

    async def wait(self, count: int, until_s: float) -> bool:
        """Whether it is this lease's turn, for `count` items, before that time of the loop's clock.

        If so, call `served` with the count when the lease was answered. Raises what `end` was called with.
        """
        if self._ended is not None:
            raise self._ended
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[turn] = count
        self.kick()
        try:
            async with asyncio.timeout_at(until_s):
                await turn
        except BaseException as error:
            self._waiting.pop(turn, None)
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.served(count, count)  # it was its turn, and it goes
            if isinstance(error, TimeoutError):
                return False
            raise
        return True

    def begin(self, count: int) -> None:
        """A lease did not wait; call `served` when it was answered."""
        self._served += count

    def served(self, count: int, got: int) -> None:
        """A lease of `count` items has been answered, and got so many."""
        self._served -= count
        self._pause_s = FIRST_PAUSE_S if got else min(2 * self._pause_s, MAX_PAUSE_S)
        self.kick()

    def end(self, error: BatonError) -> None:
        """Nobody will be served any more: those who wait get the error, and those who come."""
        self._ended = error
        for turn in self._waiting:
            if not turn.done():
                turn.set_exception(error)
        self._waiting.clear()
        self.kick()

    def kick(self) -> None:
        """Something may have changed: wakes those who could be served."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._waiting:
            return
        left = self._leasable() - self._served
        for turn, count in list(self._waiting.items()):
            if left <= 0:
                break
            del self._waiting[turn]
            if turn.done():
                continue
            self._served += count
            left -= count
            turn.set_result(None)
        next_s = self._next_end_s() if self._waiting else None
        if next_s is not None:
            self._timer = asyncio.get_running_loop().call_later(max(next_s, self._pause_s), self.kick)
