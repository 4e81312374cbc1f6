"""Those who ask at the same time share a request, and nothing else: neither its failure nor its end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from services.consumer.adapters.kafka.coalesce import CoalescedRead
from shared.errors import Unavailable


class Answering:
    """Answers each request with its number, as many as it may; fails for requests with a bad key, and has no
    answer at once for a late one.
    """

    def __init__(self) -> None:
        self.requests: list[list[str]] = []
        self.may_answer = asyncio.Semaphore(0)
        self.late_is_here = asyncio.Event()
        self.together: CoalescedRead[str, int] = CoalescedRead(self.request, self.patient)

    async def request(self, keys: Sequence[str]) -> dict[str, int]:
        number = await self._number(keys)
        return {key: number for key in keys if key != "late"}

    async def patient(self, keys: Sequence[str]) -> dict[str, int]:
        if "late" in keys:
            await self.late_is_here.wait()
        return dict.fromkeys(keys, await self._number(keys))

    async def _number(self, keys: Sequence[str]) -> int:
        self.requests.append(list(keys))
        number = len(self.requests)
        await self.may_answer.acquire()
        if "bad" in keys:
            raise Unavailable("of no use")
        return number

    async def asked(self, *keys: str) -> list[asyncio.Task[int]]:
        """Tasks that ask, each of them as far as it comes by itself."""
        tasks = [asyncio.create_task(self.together.ask(key)) for key in keys]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return tasks


def answer_all(server: Answering) -> None:
    for _ in range(10):
        server.may_answer.release()


async def test_who_asks_during_a_request_shares_the_next_one() -> None:
    """An answer never comes from a request that was begun before the question."""
    server = Answering()
    first = await server.asked("a")
    later = await server.asked("b", "c")

    answer_all(server)

    assert await asyncio.gather(*first, *later) == [1, 2, 2]
    assert server.requests == [["a"], ["b", "c"]]


async def test_a_failure_for_several_is_asked_again_for_each() -> None:
    """Only the one that cannot be answered fails."""
    server = Answering()
    first = await server.asked("a")
    later = await server.asked("b", "bad", "c")

    answer_all(server)
    found = await asyncio.gather(*first, *later, return_exceptions=True)

    assert [isinstance(answer, Unavailable) for answer in found] == [False, False, True, False]
    assert server.requests == [["a"], ["b", "bad", "c"], ["b"], ["bad"], ["c"]]


async def test_who_is_left_out_waits_alone() -> None:
    """Nobody else waits for it, not even those who ask later."""
    server = Answering()
    answer_all(server)
    (late,) = await server.asked("late")
    late_and_other = await server.asked("late", "a")

    (b,) = await server.asked("b")
    assert [await late_and_other[1], await b] == [3, 4]
    assert not late.done()
    server.late_is_here.set()

    assert [await late, await late_and_other[0]] == [5, 6]


async def test_a_failure_for_one_is_told_at_once() -> None:
    """Whether to ask again is the caller's matter, unless there is a patient way to ask."""
    server = Answering()
    answer_all(server)

    with pytest.raises(Unavailable):
        await CoalescedRead(server.request).ask("bad")
    assert server.requests == [["bad"]]

    with pytest.raises(Unavailable):
        await server.together.ask("bad")
    assert server.requests == [["bad"]] * 3


async def test_a_cancelled_request_is_made_again_for_the_others() -> None:
    """The caller that happened to make it may be cancelled at any time."""
    server = Answering()
    first = await server.asked("a")
    leader, follower = await server.asked("b", "c")
    server.may_answer.release()
    await asyncio.gather(*first)
    assert server.requests[1:] == [["b", "c"]]

    leader.cancel()
    server.may_answer.release()

    assert await follower == 3
    assert server.requests[1:] == [["b", "c"], ["c"]]
    assert repr(server.together) == "<CoalescedRead, 0 waiting>"
