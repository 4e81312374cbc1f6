"""What a lease hands out is bounded in bytes; what does not fit comes back without an attempt."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Any

import pytest

from services.queue.core.items import ItemRecord
from services.queue.core.open_items import Place
from services.queue.ports import Unstored
from services.queue.worker import handing_out
from tests.fakes.queues import InMemoryItemLog, InMemoryQueueStore
from tests.fakes.virtual_time import virtual_time
from tests.unit.queue.world import receipts, worker


@pytest.fixture
def read_at_once(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many items each reading asks for."""
    found: list[int] = []
    get = InMemoryItemLog.get

    async def counted(self: InMemoryItemLog, places: Collection[Place]) -> Mapping[Place, ItemRecord]:
        found.append(len(places))
        return await get(self, places)

    monkeypatch.setattr(InMemoryItemLog, "get", counted)
    return found


def test_a_lease_of_many_large_items_gets_some_and_the_next_gets_the_rest(read_at_once: list[int]) -> None:
    """In order, each once, as its first attempt; never more than ten items are read at a time."""
    sizes, found = drained([600_000] * 20)

    assert found == [(n, 1) for n in range(20)]
    assert max(sizes) == handing_out.ANSWER_BYTES // 600_000
    assert max(read_at_once) <= handing_out.READ_AT_ONCE


def test_one_item_that_is_too_large_for_any_answer_is_handed_out_alone() -> None:
    """Others' topics may hold such records; it must not block what follows it."""
    sizes, found = drained([10, handing_out.ANSWER_BYTES, 10])

    assert found == [(0, 1), (1, 1), (2, 1)]
    assert sizes == [1, 1, 1]


def drained(sizes: list[int]) -> tuple[list[int], list[tuple[int, int]]]:
    """How many items each lease got, and partition offset and attempt of each item, over items so large."""
    answers: list[list[dict[str, Any]]] = []

    @virtual_time
    async def drain() -> None:
        store = InMemoryQueueStore()
        topic = store.make_topic("large")
        topic.partitions[0] += [ItemRecord(value=b'"%b"' % (b"x" * size)) for size in sizes]
        async with worker(store) as one:
            await one.call("PUT", "q", {"over": "large", "max_attempts": 1})
            while items := await one.lease(max=100):
                answers.append(items)
                await one.call("POST", "q/ack", {"receipts": receipts(items)})

    drain()
    found = [(int(item["receipt"].split("/")[1]), item["attempt"]) for items in answers for item in items]
    return [len(items) for items in answers], found


@virtual_time
async def test_many_large_items_are_rejected_some_at_a_time() -> None:
    """Each may have a megabyte, and a request may name a thousand."""
    store = InMemoryQueueStore()
    async with worker(store) as one:
        await one.call("PUT", "q", {})
        await one.put(*({"data": n} for n in range(35)))
        held = receipts(await one.lease(max=100))
        at_once: list[int] = []
        letters = (await one.queues.find("q.dead")).items
        append = letters.append

        async def counted(items: Any) -> Unstored:
            at_once.append(len(items))
            return await append(items)

        letters.append = counted  # type: ignore[method-assign]
        done = await one.call("POST", "q/reject", {"receipts": held})
        await asyncio.sleep(1)
        status = await one.call("GET", "q")

    assert done == {"done": 35, "stale": []}
    assert (status["dead"], status["leased"]) == (35, 0)
    assert sum(at_once) == 35
    assert max(at_once) <= handing_out.READ_AT_ONCE
