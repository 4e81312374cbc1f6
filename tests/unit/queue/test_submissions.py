"""Commands on their way: what is not answered is given up, however many there are."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from services.queue.core.commands import Ack, Receipt
from services.queue.core.fold import Answer, ReceiptsAnswer
from services.queue.worker.submissions import ANSWER_TIMEOUT_S, Submissions
from shared.errors import KafkaUnavailable
from tests.fakes.queues import InMemoryQueueStore
from tests.fakes.virtual_time import virtual_time


@virtual_time
async def test_each_command_is_given_up_after_its_own_time() -> None:
    """A log that says nothing costs a caller 15 s, no matter when the others called."""
    store = InMemoryQueueStore()
    await store.create("q", over="", partitions=1)
    submissions = Submissions(store.open_log("q"), b"w", list[Sequence[Answer]]().append, bytes)
    loop = asyncio.get_running_loop()
    waited: list[float] = []

    async def call(after_s: float) -> None:
        await asyncio.sleep(after_s)
        begun_s = loop.time()
        with pytest.raises(KafkaUnavailable, match="in time"):
            await submissions.submit([Ack((Receipt(0, 1, 1),))])
        waited.append(loop.time() - begun_s)

    await asyncio.gather(*(call(after_s) for after_s in (0, 1, 1, 7, 14.9, 20)))

    assert waited == pytest.approx([ANSWER_TIMEOUT_S] * 6, abs=0.01)


@virtual_time
async def test_no_answer_gets_lost_with_its_caller() -> None:
    """Whether the caller goes before the answer comes or in the same turn of the loop: it is unclaimed."""
    store = InMemoryQueueStore()
    await store.create("q", over="", partitions=1)
    unclaimed: list[Answer] = []
    submissions = Submissions(store.open_log("q"), b"w", unclaimed.extend, bytes)
    answer = ReceiptsAnswer(())

    for number, is_answered_first in enumerate((True, False), start=1):
        call = asyncio.create_task(submissions.submit([Ack((Receipt(0, 1, 1),))]))
        await asyncio.sleep(0)
        await submissions.step()
        steps = [lambda number=number: submissions.answer(number, [answer]), call.cancel]
        for step in steps if is_answered_first else reversed(steps):
            step()
        await asyncio.wait((call,))
        assert call.cancelled()

    assert unclaimed == [answer, answer]
