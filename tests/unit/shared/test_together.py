"""Several calls at once: their results in order, their first failure, and never a lost cancellation."""

from __future__ import annotations

import asyncio

import pytest

from shared.errors import Unavailable
from shared.together import both, together


class Call:
    """A call whose end the test decides."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.is_cancelled = False

    async def __call__(self) -> int:
        try:
            return await self.answer
        except asyncio.CancelledError:
            self.is_cancelled = True
            raise


async def test_results_come_in_the_order_of_the_calls() -> None:
    """Whichever ends first; no call has no result."""
    first, second = Call(), Call()
    waiting = asyncio.ensure_future(together([first(), second()]))
    second.answer.set_result(2)
    await asyncio.sleep(0)
    first.answer.set_result(1)

    assert await waiting == [1, 2]
    assert await together([]) == []
    assert await both(asyncio.sleep(0, "a"), asyncio.sleep(0, 1)) == ("a", 1)


async def test_a_failure_ends_the_other_calls() -> None:
    """Nothing of them runs on behind the caller's back."""
    failing, other = Call(), Call()
    waiting = asyncio.ensure_future(both(other(), failing()))
    await asyncio.sleep(0)
    failing.answer.set_exception(Unavailable("no answer"))

    with pytest.raises(Unavailable):
        await waiting
    assert other.is_cancelled


@pytest.mark.parametrize("turns", range(4))
async def test_a_cancellation_beside_a_failure_is_not_lost(turns: int) -> None:
    """So many turns of the loop after a call has failed: a caller that asks again on a failure must end."""
    calls: list[Call] = []

    async def asks_again() -> None:
        while True:
            calls[:] = Call(), Call()
            try:
                await both(calls[0](), calls[1]())
            except Unavailable:
                continue

    asking = asyncio.ensure_future(asks_again())
    for _ in range(3):  # so that both calls wait
        await asyncio.sleep(0)
    calls[0].answer.set_exception(Unavailable("no answer"))
    for _ in range(turns):
        await asyncio.sleep(0)
    asking.cancel()
    done, _ = await asyncio.wait({asking}, timeout=5)

    assert done
    assert asking.cancelled()


async def test_a_caller_that_is_dropped_waits_for_nothing() -> None:
    """A coroutine that nobody runs any more is closed, and must not wait then."""
    call = Call()
    dropped = together([call()])
    dropped.send(None)

    dropped.close()

    call.answer.set_result(1)
