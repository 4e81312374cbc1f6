"""Several workers of one queue: none owns it, all agree, and killing them loses nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from services.queue.core.commands import Configure, QueueSettings, encode_record
from services.queue.core.replica import LogRecord
from services.queue.core.snapshot import encode_state
from services.queue.worker.engine import QueueNotReady
from services.queue.worker.handing_out import HandedOut
from tests.fakes.queues import InMemoryItemLog, InMemoryQueueStore
from tests.fakes.virtual_time import until, virtual_time
from tests.unit.queue.world import Worker, receipts, worker


async def state_at(one: Worker, offset: int, queue: str = "q") -> bytes:
    """The worker's state, once it has read the log up to the offset."""
    await one.queues.find(queue)
    await until(lambda: dict(one.queues.all())[queue].engine.next_offset >= offset)
    return encode_state((await one.queues.find(queue)).engine.state)


@virtual_time
async def test_any_worker_answers_for_any_receipt() -> None:
    """A lease of one is acked, extended and given back at another, also after the first was killed."""
    store = InMemoryQueueStore()
    async with worker(store) as one, worker(store) as two:
        await one.call("PUT", "q", {})
        await one.put(*({"data": n} for n in range(3)))
        a, b, c = receipts(await one.lease(max=3))
        await one.kill()

        await two.call("POST", "q/ack", {"receipts": [a]})
        await two.call("POST", "q/extend", {"receipts": [b], "lease_s": 60})
        await two.call("POST", "q/release", {"receipts": [c]})
        (again,) = await two.lease(max=10)
        status = await two.call("GET", "q")

    assert (again["data"], again["attempt"]) == (2, 2)
    assert (status["ready"], status["leased"]) == (0, 2)


@virtual_time
async def test_a_new_worker_begins_at_the_snapshot_with_the_same_state() -> None:
    """Snapshots trim the log; what is committed for Kafka's tools is the lowest offset that is not done."""
    store = InMemoryQueueStore()
    async with worker(store, snapshot_every=10) as one:
        await one.call("PUT", "q", {})
        await one.put(*({"data": n, "id": str(n)} for n in range(40)))
        held = await one.lease()
        for _ in range(20):
            await one.call("POST", "q/ack", {"receipts": receipts(await one.lease())})
        await until(lambda: "q" in store.committed)
        log = store.logs["q"]
        async with worker(store, snapshot_every=10) as two:
            end = len(log.records)
            same = await state_at(one, end) == await state_at(two, end)
            await two.call("POST", "q/ack", {"receipts": receipts(held)})
            counts = (await two.queues.find("q")).engine.state.counts

    assert log.start > 0
    assert store.committed["q"] == [0]
    assert same
    assert counts.acked == 21


@virtual_time
async def test_a_worker_that_was_overtaken_by_a_snapshot_begins_again() -> None:
    """Its log was trimmed under it: it answers from the snapshot on."""
    store = InMemoryQueueStore()
    async with worker(store, snapshot_every=10) as one, worker(store, snapshot_every=10) as two:
        await one.call("PUT", "q", {})
        await two.call("GET", "q")
        reading = store.readers["q"]
        reading.may_read.clear()
        await one.put(*({"data": n} for n in range(30)))
        for _ in range(20):
            await one.call("POST", "q/ack", {"receipts": receipts(await one.lease())})
        overtaken = (await two.queues.find("q")).engine.next_offset < store.logs["q"].start
        reading.may_read.set()
        end = len(store.logs["q"].records)
        same = await state_at(one, end) == await state_at(two, end)

    assert overtaken
    assert same


@virtual_time
async def test_a_command_without_an_answer_is_a_503_and_may_have_had_its_effect() -> None:
    """Lost before the log, nothing happened; lost after it, the items are given back once the log is read."""
    store = InMemoryQueueStore()
    async with worker(store) as one:
        await one.call("PUT", "q", {"lease_s": 5})
        await one.put({"data": 1})
        store.fail = ["before"]
        before = await one.http.post("/queues/q/lease")
        untouched = await one.call("GET", "q")
        store.fail = ["after"]
        after = await one.http.post("/queues/q/lease")
        (item,) = await one.lease(wait_s=1)

    assert (before.status_code, untouched["ready"]) == (503, 1)
    assert after.status_code == 503
    assert item["attempt"] == 1


@virtual_time
async def test_a_queue_with_unknown_rules_is_refused() -> None:
    """A worker that would fold it differently must not answer; it says why, and others queues work."""
    store = InMemoryQueueStore()
    await store.create("new", over="", partitions=1)
    value = encode_record(b"other", 1, [Configure(QueueSettings(rules=99))])
    store.logs["new"].records.append(LogRecord(0, 1, value))
    async with worker(store) as one:
        refused = await one.http.post("/queues/new/lease")
        await one.call("PUT", "q", {})
        await asyncio.sleep(10)
        ready = (await one.http.get("/readyz")).json()
        listed = (await one.http.get("/queues")).json()["queues"]

    assert [(queue["queue"], queue["ready"]) for queue in listed] == [("new", None), ("q", 0)]
    assert refused.status_code == 503
    assert "rules 99" in refused.json()["detail"]
    assert "rules 99" in ready["remarks"][0]


@virtual_time
async def test_dead_letters_of_a_killed_worker_are_buried_by_another() -> None:
    """The copy is made before the item is done: made twice, its id shows the repeat."""
    store = InMemoryQueueStore()
    async with worker(store) as one, worker(store) as two:
        await one.call("PUT", "q", {"max_attempts": 1, "lease_s": 1})
        await one.put({"data": 1})
        (first,) = receipts(await one.lease())
        await asyncio.sleep(2)
        # the copy is stored, and the word of it is lost; it is alone in its record, as the lease waits
        store.fail = ["", "before"]
        await one.lease(wait_s=1)
        await until(lambda: len(store.topics["q.dead"].partitions[0]) == 1)
        await one.kill()
        await two.lease(wait_s=20)
        await two.lease(wait_s=20)
        letters = await two.lease("q.dead", max=10)
        status = await two.call("GET", "q")

    assert len(store.topics["q.dead"].partitions[0]) == 2
    assert [item["id"].rpartition("/")[0] for item in letters] == [f"q/{first.rpartition('/')[0]}"]
    assert (status["ready"], status["leased"], status["waiting"]) == (0, 0, 0)


@virtual_time
async def test_queues_made_at_two_workers_at_once_are_one() -> None:
    """The first command in the log says what the queue is; the other one is told."""
    store = InMemoryQueueStore()
    async with worker(store) as one, worker(store) as two:
        answers = await asyncio.gather(
            one.http.put("/queues/q", json={"partitions": 2}), two.http.put("/queues/q", json={"lease_s": 9})
        )
        shown = [await each.call("GET", "q") for each in (one, two)]

    assert sorted(answer.status_code for answer in answers) == [200, 409]
    assert shown[0] == shown[1]


@virtual_time
async def test_a_worker_that_lags_buries_no_item_without_its_letter() -> None:
    """It rejects by a receipt of another worker, whose lease it has not read when it is asked."""
    store = InMemoryQueueStore()
    async with worker(store) as one, worker(store) as two:
        await one.call("PUT", "q", {})
        await two.call("GET", "q")
        reading = store.readers["q"]
        reading.may_read.clear()
        await one.put({"data": 1})
        held = receipts(await one.lease())
        rejecting = asyncio.create_task(two.call("POST", "q/reject", {"receipts": held}))
        await asyncio.sleep(1)
        reading.may_read.set()
        done = await rejecting
        (letter,) = await one.lease("q.dead", wait_s=1)

    assert done == {"done": 1, "stale": []}
    assert letter["data"] == 1


@virtual_time
async def test_a_worker_that_stood_still_hands_out_nothing_that_is_over() -> None:
    """It reads the answer to its lease when the item is another client's; its own gets nothing."""
    store = InMemoryQueueStore()
    async with worker(store) as one, worker(store) as two:
        await one.call("PUT", "q", {"lease_s": 5})
        await two.call("GET", "q")
        await one.put({"data": 1}, {"data": 2})
        await two.call("GET", "q")
        reading = store.readers["q"]
        reading.may_read.clear()
        late = asyncio.create_task(two.lease(max=10, wait_s=20))
        await asyncio.sleep(6)
        (again, _) = await one.lease(max=10, lease_s=600)
        reading.may_read.set()
        found = await late

    assert (again["data"], again["attempt"]) == (1, 2)
    assert found == []


@virtual_time
async def test_a_log_that_cannot_be_read_for_a_moment_is_taken_for_a_new_one() -> None:
    """With its items: another worker may have deleted the queue meanwhile, and created it anew."""
    store = InMemoryQueueStore()
    async with worker(store) as one:
        await one.call("PUT", "q", {})
        await one.put({"data": "old"})
        before = (await one.queues.find("q")).items
        store.is_away = True
        await store.readers["q"].interrupt()
        store.is_away = False
        await until(lambda: dict(one.queues.all())["q"].engine.items not in (before, None))
        (item,) = await one.lease()

    assert item["data"] == "old"


class _SlowItems(InMemoryQueueStore):
    """Opens no items while `may_open` is clear."""

    def __init__(self) -> None:
        super().__init__()
        self.may_open = asyncio.Event()
        self.may_open.set()

    async def open_items(
        self, name: str, *, over: str, partitions: int, frontier: Sequence[int]
    ) -> InMemoryItemLog:
        await self.may_open.wait()
        return await super().open_items(name, over=over, partitions=partitions, frontier=frontier)


@virtual_time
async def test_a_log_that_fails_while_its_items_are_being_opened_opens_them_again() -> None:
    """The items belong to what was read before; with a fold that begins anew they would not fit."""

    async def poll(one: Worker) -> Sequence[HandedOut]:
        return await (await one.queues.find("q")).poll(1, 60_000, 5)

    store = _SlowItems()
    async with worker(store) as one:
        await one.call("PUT", "q", {"partitions": 2})
        await one.put({"data": "old"})
        store.may_open.clear()
        async with worker(store) as two:
            await until(lambda: "q" in dict(two.queues.all()))
            engine = dict(two.queues.all())["q"].engine
            await engine.until_read(1)
            waiting = asyncio.create_task(poll(two))
            await asyncio.sleep(0.1)
            reading = store.readers["q"]
            store.is_away = True
            await reading.interrupt()
            store.is_away = False
            reading.may_read.clear()  # so the items would be there before anything is folded again
            await asyncio.sleep(1)
            store.may_open.set()
            with pytest.raises(QueueNotReady):
                await waiting
            reading.may_read.set()
            (item,) = await two.lease(wait_s=5)

    assert item["data"] == "old"


@virtual_time
async def test_a_deletion_that_was_cut_off_can_be_repeated() -> None:
    """The queue itself goes last: as long as it is there, its rest can be deleted, or created again."""
    store = InMemoryQueueStore()
    async with worker(store) as one:
        await one.call("PUT", "q", {})
        store.drop("q.dead")
        await until(lambda: "q.dead" not in dict(one.queues.all()))
        repaired = await one.call("PUT", "q", {"lease_s": 3})
        store.drop("q.dead")
        await until(lambda: "q.dead" not in dict(one.queues.all()))
        await one.call("DELETE", "q")

    assert repaired["settings"]["lease_s"] == 3.0
    assert (store.logs, store.topics) == ({}, {})
