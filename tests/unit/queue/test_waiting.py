"""Long polls: what wakes them, in which order, and what becomes of those whose client goes."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from services.queue.worker.engine import Engine
from tests.fakes.http import connected
from tests.fakes.queues import InMemoryQueueStore
from tests.fakes.virtual_time import until, virtual_time
from tests.unit.queue.world import Worker, receipts, worker

Poll = asyncio.Task[list[dict[str, Any]]]


async def polls(one: Worker, count: int, queue: str = "q") -> list[Poll]:
    """Leases of one item that wait, in the order in which they came."""
    engine = (await one.queues.find(queue)).engine
    tasks: list[Poll] = []
    for n in range(count):
        tasks.append(asyncio.create_task(one.lease(queue, wait_s=20)))
        await until(partial(is_waiting, engine, n + 1))
    return tasks


def is_waiting(engine: Engine, count: int) -> bool:
    """Whether so many leases wait."""
    return engine.demand.waiting == count


@virtual_time
async def test_an_item_wakes_the_poll_that_came_first() -> None:
    """At another worker, too; the others go on waiting."""
    store = InMemoryQueueStore()
    async with worker(store) as one, worker(store) as two:
        await one.call("PUT", "q", {})
        first, second = await polls(one, 2)

        await two.put({"data": 1})
        done, waiting = await asyncio.wait((first, second), return_when=asyncio.FIRST_COMPLETED)
        await two.put({"data": 2})
        found = await second

    assert (done, waiting) == ({first}, {second})
    assert [first.result()[0]["data"], found[0]["data"]] == [1, 2]


@virtual_time
async def test_a_release_and_the_end_of_a_lease_wake_a_poll() -> None:
    """Also when another worker answered for them, and no other command comes."""
    store = InMemoryQueueStore()
    loop = asyncio.get_running_loop()
    async with worker(store) as one, worker(store) as two:
        await one.call("PUT", "q", {"lease_s": 10})
        await one.put({"data": 1})
        (item,) = await one.lease()
        (released,) = await polls(two, 1)
        began_s = loop.time()
        await one.call("POST", "q/release", {"receipts": [item["receipt"]]})
        again = await released
        released_s = loop.time() - began_s
        last = await one.lease(wait_s=20)
        ended_s = loop.time() - began_s

    assert again[0]["attempt"] == 2
    assert released_s < 0.1
    assert last[0]["attempt"] == 3
    assert 10 <= ended_s < 10.2


@virtual_time
async def test_a_poll_ends_with_nothing_when_its_time_or_the_service_ends() -> None:
    """200 with no items; nothing was leased for it."""
    loop = asyncio.get_running_loop()
    async with worker(InMemoryQueueStore()) as one:
        await one.call("PUT", "q", {})
        began_s = loop.time()
        nothing = await one.lease(wait_s=2)
        took_s = loop.time() - began_s
        (poll,) = await polls(one, 1)
        one.leaving.set()
        cut = await poll
        await one.put({"data": 1})
        status = await one.call("GET", "q")
        ready = await one.http.get("/readyz")

    assert (nothing, cut) == ([], [])
    assert took_s == pytest.approx(2)
    assert (status["ready"], status["leased"]) == (1, 0)
    assert ready.status_code == 503


@virtual_time
async def test_an_item_for_a_client_that_has_gone_is_given_back() -> None:
    """Whether it went while it waited, or while the lease was on its way: that one was no attempt."""
    async with worker(InMemoryQueueStore()) as one:
        await one.call("PUT", "q", {})
        leasing = await one.queues.find("q")
        waits = asyncio.create_task(leasing.poll(1, 600_000, 20))
        await until(lambda: leasing.engine.demand.waiting == 1)
        waits.cancel()
        await asyncio.wait((waits,))
        await one.put({"data": 1})

        under_way = asyncio.create_task(leasing.poll(1, 600_000, 20))
        await until(lambda: leasing.engine.demand.waiting == 0 and not under_way.done())
        under_way.cancel()
        (item,) = await one.lease(wait_s=1)

    assert waits.cancelled()
    assert item["attempt"] == 1


@virtual_time
async def test_crowds_of_polls_share_what_there_is() -> None:
    """Every item goes to exactly one of them, and none waits while there is an item for it."""
    store = InMemoryQueueStore()
    async with worker(store) as one, worker(store) as two:
        await one.call("PUT", "q", {})
        waiting = [*await polls(one, 20), *await polls(two, 20)]
        await one.put(*({"data": n} for n in range(40)))
        found = [item for items in await asyncio.gather(*waiting) for item in items]
        done = await two.call("POST", "q/ack", {"receipts": receipts(found)})

    assert sorted(item["data"] for item in found) == list(range(40))
    assert done == {"done": 40, "stale": []}


@virtual_time
async def test_a_poll_whose_client_hangs_up_takes_no_item() -> None:
    """Over HTTP: the connection ends while the request waits. Whoever comes next gets the item, at once."""
    store = InMemoryQueueStore()
    async with worker(store) as one:
        await one.call("PUT", "q", {"lease_s": 600})
        engine = (await one.queues.find("q")).engine
        connection, wire = connected(one.face)
        connection.data_received(
            b"POST /queues/q/lease HTTP/1.1\r\nhost: queue\r\ncontent-type: application/json\r\n"
            b'content-length: 13\r\n\r\n{"wait_s":20}'
        )
        await until(partial(is_waiting, engine, 1))
        wire.abort()
        await until(partial(is_waiting, engine, 0))
        await one.put({"data": 1})
        (item,) = await one.lease()

    assert item["attempt"] == 1


@virtual_time
async def test_while_the_brokers_clock_stands_polls_do_not_flood_the_log() -> None:
    """It has gone back, so a lease that should be over is not: only time in the log ends it."""
    store = InMemoryQueueStore()
    async with worker(store) as one:
        await one.call("PUT", "q", {"lease_s": 5})
        await one.put({"data": 1})
        await one.lease()
        await asyncio.sleep(4.999)
        await one.call("POST", "q/ack", {"receipts": ["0/0/0"]}, status=409)  # time in the log goes on
        store.clock_lag_ms = 3_600_000
        before = len(store.logs["q"].records)
        nothing = await one.lease(wait_s=20)
        written = len(store.logs["q"].records) - before
        store.clock_lag_ms = 0
        (item,) = await one.lease(wait_s=20)

    assert nothing == []
    assert written < 20 * 15
    assert item["attempt"] == 2


@virtual_time
async def test_a_poll_ends_with_an_error_when_its_queue_goes() -> None:
    """Deleted, or its log is read anew: the client asks again, and learns which."""
    async with worker(InMemoryQueueStore()) as one:
        await one.call("PUT", "q", {})
        poll = asyncio.create_task(one.http.post("/queues/q/lease", json={"wait_s": 20}))
        engine = (await one.queues.find("q")).engine
        await until(partial(is_waiting, engine, 1))
        began_s = asyncio.get_running_loop().time()
        await one.call("DELETE", "q")
        answer = await poll
        took_s = asyncio.get_running_loop().time() - began_s
        again = await one.http.post("/queues/q/lease", json={"wait_s": 20})

    assert (answer.status_code, again.status_code) == (503, 404)
    assert took_s < 1
