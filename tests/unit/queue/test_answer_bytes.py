"""Answers with items have one budget per worker, and caches another."""

from __future__ import annotations

import time

from services.queue.core.items import ItemRecord
from services.queue.http.exchange import PIECE_BYTES
from services.queue.kafka import cache
from services.queue.kafka.cache import ItemCache, ItemCaches
from services.queue.worker.answers import COPIES
from tests.fakes.http import connected
from tests.fakes.queues import InMemoryQueueStore
from tests.fakes.virtual_time import until, virtual_time
from tests.unit.queue.world import Worker, receipts, worker

ITEM_BYTES = 100_000


class SlowClient:
    """A lease of many items whose client takes one piece of the answer, and then none until it goes on."""

    def __init__(self, one: Worker) -> None:
        self._connection, self._wire = connected(one.face)
        self._write = self._wire.write
        self._wire.write = self._fill  # type: ignore[method-assign]
        body = b'{"max":5}'
        head = (
            b"POST /queues/q/lease HTTP/1.1\r\nhost: queue\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n" % len(body)
        )
        self._connection.data_received(head + body)

    def _fill(self, data: bytes) -> None:
        self._write(data)
        if len(self.body) >= PIECE_BYTES:
            self._connection.pause_writing()

    @property
    def status(self) -> int:
        return int(self._wire.written[9:12] or 0)

    @property
    def body(self) -> bytes:
        return bytes(self._wire.written).partition(b"\r\n\r\n")[2]

    async def go_on(self) -> None:
        """Takes the rest."""
        self._wire.write = self._write  # type: ignore[method-assign]
        self._connection.resume_writing()
        await until(lambda: self._connection.requests.running is None)
        self._wire.abort()


@virtual_time
async def test_many_slow_clients_with_large_items_hold_no_more_than_the_budget() -> None:
    """Answers get fewer items, then 429; what was leased in vain comes back as a first attempt."""
    most = COPIES * 8 * ITEM_BYTES
    async with worker(InMemoryQueueStore(), max_answer_bytes=most) as one:
        await one.call("PUT", "q", {"max_attempts": 1})
        await one.put(*({"data": "x" * ITEM_BYTES} for _ in range(15)))
        clients = []
        for _ in range(3):
            clients.append(SlowClient(one))
            await until(lambda: clients[-1].status > 0)
        refused = await one.http.post("/queues/q/lease", json={"max": 1})
        held = one.queues.answers.bytes
        for client in clients:
            await client.go_on()
        left = one.queues.answers.bytes
        rest = await one.lease(max=100)
        again = await one.lease(max=100)

    assert [client.status for client in clients] == [200, 200, 429]
    assert all(len(client.body) > 2 * PIECE_BYTES for client in clients[:2])
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    assert COPIES * 7 * ITEM_BYTES < held <= most
    assert left == 0
    assert (len(rest), len(again)) == (7, 1)
    assert {item["attempt"] for item in [*rest, *again]} == {1}


@virtual_time
async def test_an_item_that_is_larger_than_the_budget_is_handed_out_alone() -> None:
    """Else it would never be."""
    async with worker(InMemoryQueueStore(), max_answer_bytes=1_000) as one:
        await one.call("PUT", "q", {})
        await one.put({"data": "x" * ITEM_BYTES}, {"data": 2})
        first, second = await one.lease(max=10), await one.lease(max=10)
        await one.call("POST", "q/ack", {"receipts": receipts(first + second)})

    assert [len(first), len(second)] == [1, 1]


def test_all_caches_together_hold_no_more_than_the_budget() -> None:
    """The queue that has most gives up its oldest items first, and reads less ahead."""
    caches = ItemCaches(10_000)
    busy, calm = ItemCache(caches), ItemCache(caches)
    calm.keep((0, 0), ItemRecord(value=b"x" * 800))
    alone = caches.ahead_bytes
    for n in range(100):
        busy.keep((0, n), ItemRecord(value=b"x" * 800))

    assert caches.bytes == busy.bytes + calm.bytes <= 10_000
    assert calm.get((0, 0)) is not None
    assert (busy.get((0, 0)), busy.get((0, 99)) is not None) == (None, True)
    assert caches.ahead_bytes < alone
    busy.clear()
    assert caches.bytes == calm.bytes


def test_one_queue_has_a_bound_of_its_own() -> None:
    """Whatever there is room for."""
    caches = ItemCaches(10 * cache.QUEUE_BYTES)
    one = ItemCache(caches)
    for n in range(40):
        one.keep((0, n), ItemRecord(value=bytes(1024 * 1024)))

    assert one.bytes <= cache.QUEUE_BYTES
    assert len(one) == 23


def test_a_full_cache_drops_its_oldest_item_without_a_search() -> None:
    """Each new item drops an old one then, so 50,000 of them cost a tenth of a second, and not three."""
    one = ItemCache(ItemCaches())
    item = ItemRecord(value=b"x" * 100)
    began_s = time.process_time()
    for n in range(150_000):
        if n == 100_000:
            began_s = time.process_time()
        one.keep((0, n), item)

    assert time.process_time() - began_s < 1.5
    assert one.bytes <= cache.QUEUE_BYTES
