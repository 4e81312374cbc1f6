"""Items and dead letters that Kafka refuses for good: each has its own outcome, and none blocks others."""

from __future__ import annotations

import asyncio
from typing import Any

from services.queue.core.items import ItemRecord
from services.queue.kafka.items import KafkaItemLog
from services.queue.ports import Unstored
from shared.kafka.connect.cluster import Cluster
from shared.kafka.read.fetcher import Fetcher
from shared.kafka.send.sender import Sender
from tests.fakes.kafka_produce import ProducingKafka
from tests.fakes.queues import InMemoryQueueStore
from tests.fakes.virtual_time import virtual_time
from tests.unit.queue.world import receipts, worker

LARGE = "x" * 1_000


def letters_of(store: InMemoryQueueStore, queue: str = "q") -> list[ItemRecord]:
    """The letters as they lie in their topic."""
    return [letter for letter in store.topics[f"{queue}.dead"].partitions[0] if letter is not None]


@virtual_time
async def test_a_letter_that_is_too_large_goes_without_its_value_and_blocks_no_other() -> None:
    """It says where the item is; the others are copied once. What was rejected by a client ends so, too."""
    store = InMemoryQueueStore()
    store.max_bytes["q.dead"] = 100
    async with worker(store) as one:
        await one.call("PUT", "q", {"max_attempts": 1, "lease_s": 1})
        await one.put({"data": LARGE, "id": "big"}, *({"data": n} for n in range(5)), {"data": LARGE})
        *_, last = await one.lease(max=10)
        done = await one.call("POST", "q/reject", {"receipts": [last["receipt"]], "why": "bad"})
        for _ in range(4):
            await asyncio.sleep(40)
            await one.lease(max=10)
        await asyncio.sleep(1)
        status = await one.call("GET", "q")
        metrics = (await one.http.get("/metrics")).text
        shown = await one.lease("q.dead", max=10)
    letters = letters_of(store)

    assert done == {"done": 1, "stale": []}
    assert (status["ready"], status["leased"], status["waiting"], status["dead"]) == (0, 0, 0, 7)
    assert sorted(letter.value for letter in letters) == [b"", b"", b"0", b"1", b"2", b"3", b"4"]
    assert [item["headers"] for item in shown if "raw" in item] == [
        {"attempts": "1", "why": "bad", "place": "q/0/6", "size": "1002"},
        {"attempts": "1", "why": "max_attempts", "item": "big", "place": "q/0/0", "size": "1002"},
    ]
    assert 'baton_queue_bare_letters_total{queue="q"} 2.0' in metrics


@virtual_time
async def test_a_letter_that_may_not_be_stored_holds_up_no_other() -> None:
    """Those that are stored are done, and not copied again when the rest is tried again."""
    store = InMemoryQueueStore()
    async with worker(store) as one:
        await one.call("PUT", "q", {"max_attempts": 1, "lease_s": 1})
        await one.put(*({"data": n} for n in range(5)))
        await one.lease(max=10)
        letters = (await one.queues.find("q.dead")).items
        append, tries = letters.append, list[int]()

        async def but_one(items: Any) -> Unstored:
            tries.append(len(items))
            if len(tries) > 1:
                return await append(items)
            await append(items[1:])
            return Unstored(unsure=[0])

        letters.append = but_one  # type: ignore[method-assign]
        for _ in range(3):
            await asyncio.sleep(40)
            await one.lease(max=10)
        await asyncio.sleep(1)
        status = await one.call("GET", "q")

    assert tries == [5, 1]
    assert (status["leased"], status["dead"]) == (0, 5)
    assert sorted(letter.value for letter in letters_of(store)) == [b"0", b"1", b"2", b"3", b"4"]


@virtual_time
async def test_an_item_that_kafka_refuses_for_good_is_rejected_and_not_a_503() -> None:
    """To put it again would be in vain; the others of its request are stored."""
    store = InMemoryQueueStore()
    async with worker(store) as one:
        await one.call("PUT", "q", {})
        store.max_bytes["q"] = 100
        alone = await one.http.post("/queues/q/items", json={"data": LARGE})
        some = await one.call("POST", "q/items", [{"dada": 1}, {"data": LARGE}, {"data": 1}])

    assert alone.status_code == 422
    assert some["accepted"] == 1
    assert [(item["index"], item["reason"]) for item in some["rejected"]] == [(0, "invalid"), (1, "refused")]


@virtual_time
async def test_a_redrive_puts_back_what_it_can() -> None:
    """A letter without its value stays a letter, and one that Kafka refuses keeps no other back."""
    store = InMemoryQueueStore()
    async with worker(store) as one:
        await one.call("PUT", "q", {})
        await one.put({"data": LARGE}, {"data": 1}, {"data": "y" * 500}, {"data": 2})
        held = receipts(await one.lease(max=10))
        store.max_bytes |= {"q.dead": 600, "q": 100}
        await one.call("POST", "q/reject", {"receipts": held})
        refused = await one.http.post("/queues/q/redrive")
        back = await one.lease(max=10)
        left = await one.call("GET", "q")
        store.max_bytes.clear()
        await one.call("POST", "q/purge")
        await asyncio.sleep(100)
        last = [await one.call("POST", "q/redrive") for _ in range(2)]
        (letter,) = await one.lease("q.dead", max=10, wait_s=5)

    assert refused.status_code == 409
    assert [item["data"] for item in back] == [1, 2]
    assert left["dead"] == 2
    assert last == [{"ready": 1}] * 2
    assert letter["headers"]["place"] == "q/0/0"


@virtual_time
async def test_of_a_batch_that_kafka_refuses_each_item_is_tried_alone() -> None:
    """A batch is refused as a whole, whichever of its records is too large."""
    kafka = ProducingKafka()
    kafka.create("queue.q")
    cluster = Cluster("fake:1", kafka.connect)
    sender = Sender(cluster, deliver_s=5, max_batch_bytes=1_000_000)
    reader = Fetcher(cluster, is_committed=True)
    log = KafkaItemLog(cluster, reader, sender, topic="queue.q", group="g", partitions=1)
    log.close()  # else a fetch would get the refusals
    kafka.partitions["queue.q", 0].refusals.extend([10, 10])

    unstored = await log.append([ItemRecord(value=b"%d" % n) for n in range(3)])
    for one in (reader, sender, cluster):
        await one.close()

    assert unstored == Unstored(unsure=[], refused=[0])
    assert kafka.values("queue.q") == [b"1", b"2"]
