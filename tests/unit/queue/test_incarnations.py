"""Two queues of one name, one deleted before the other was created, and queues beside each other: no record
and no receipt of one has an effect on the other.
"""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from services.queue.core.commands import Ack, Configure, Lease, QueueSettings, Seek, encode_record
from services.queue.core.replica import LogMoved, LogRecord, Replica
from services.queue.core.snapshot import encode_state
from tests.fakes.queues import InMemoryQueueStore
from tests.fakes.virtual_time import until, virtual_time
from tests.unit.queue.world import Worker, receipts, worker


async def make_anew(at: Worker, settings: dict[str, object]) -> None:
    """Deletes the queue and creates it anew."""
    await at.call("DELETE", "q")
    await at.call("PUT", "q", settings)


@virtual_time
async def test_a_receipt_of_a_deleted_queue_is_stale_at_the_queue_made_anew() -> None:
    """Else it would ack an item that its holder has never seen, and the item would be lost."""
    async with worker(InMemoryQueueStore()) as one:
        await one.call("PUT", "q", {})
        await one.put({"data": "old"})
        held = receipts(await one.lease(lease_s=600))
        await make_anew(one, {"lease_s": 5})
        await one.put({"data": "new"})
        await one.lease()
        refused = [
            (await one.http.post(f"/queues/q/{how}", json={"receipts": held})).status_code
            for how in ("ack", "release", "reject", "extend")
        ]
        await asyncio.sleep(6)
        (again,) = await one.lease(wait_s=1)

    assert refused == [409] * 4
    assert (again["data"], again["attempt"]) == ("new", 2)


@virtual_time
async def test_a_receipt_works_at_its_own_queue_alone() -> None:
    """Sent to another one by mistake, it is stale there, and its item stays leased here."""
    async with worker(InMemoryQueueStore()) as one:
        for queue in ("pay", "mail"):
            await one.call("PUT", queue, {"lease_s": 600})
            await one.put({"data": queue}, queue=queue)
        pay, mail = receipts(await one.lease("pay")), receipts(await one.lease("mail"))
        wrong = await one.http.post("/queues/pay/ack", json={"receipts": mail})
        both = await one.call("POST", "pay/ack", {"receipts": mail + pay})
        left = await one.call("GET", "mail")

    assert wrong.status_code == 409
    assert both == {"done": 1, "stale": [0]}
    assert left["leased"] == 1


@virtual_time
async def test_a_receipt_that_never_was_is_stale_also_of_an_item_that_is_done() -> None:
    """Nobody can make one up: partition, offset and lease are worth nothing without their code."""
    async with worker(InMemoryQueueStore()) as one:
        await one.call("PUT", "q", {})
        await one.put({"data": 1}, {"data": 2})
        done, held = receipts(await one.lease(max=2))
        await one.call("POST", "q/ack", {"receipts": [done]})
        place, _, code = held.rpartition("/")
        other = done.replace("/0/", "/1/", 1)
        guesses = [
            place,
            other,
            f"{place}/{code[::-1]}",
            f"{done.rpartition('/')[0]}/{code}",
            done.replace(done.split("/")[2], "999999999999999999", 1),
        ]
        answers = [await one.http.post("/queues/q/ack", json={"receipts": [guess]}) for guess in guesses]
        again = await one.call("POST", "q/ack", {"receipts": [done]})
        left = await one.call("GET", "q")
        shown = (await one.http.get("/queues")).text
        engine = (await one.queues.find("q")).engine

    assert [answer.status_code for answer in answers] == [409] * len(guesses)
    assert again == {"done": 1, "stale": []}
    assert left["leased"] == 1
    assert len(engine.incarnation) == 16
    assert "incarnation" not in shown


@virtual_time
async def test_a_worker_that_has_not_noticed_the_deletion_changes_nothing_in_the_new_log() -> None:
    """Its appends go by the topic's name. What it wants of the old queue would skip items of the new one."""
    store = InMemoryQueueStore()
    async with worker(store) as one, worker(store) as two:
        await one.call("PUT", "q", {})
        await one.put(*({"data": n} for n in range(300)))
        await two.lease(max=100)
        reading = store.readers["q"]
        reading.may_read.clear()
        await make_anew(one, {})
        stale = [
            asyncio.create_task(two.http.post("/queues/q/lease", json={"max": 100})),
            asyncio.create_task(two.http.post("/queues/q/purge")),
        ]
        await until(lambda: len(store.logs["q"].records) >= 2)
        reading.may_read.set()
        refused = [(await request).status_code for request in stale]
        await one.put({"data": "first of the new queue"})
        (item,) = await one.lease(max=10)
        await until(lambda: dict(two.queues.all())["q"].engine.is_ready)
        at_two = await two.call("POST", "q/ack", {"receipts": [item["receipt"]]})

    assert refused == [503, 503]
    assert item["data"] == "first of the new queue"
    assert at_two == {"done": 1, "stale": []}


@virtual_time
async def test_a_worker_that_has_not_noticed_the_deletion_does_not_call_new_receipts_stale() -> None:
    """It cannot know them; it says that it does not know, and not that the item is another client's."""
    store = InMemoryQueueStore()
    async with worker(store) as one, worker(store) as two:
        await one.call("PUT", "q", {})
        await two.call("GET", "q")
        reading = store.readers["q"]
        reading.may_read.clear()
        await make_anew(one, {})
        await one.put({"data": 1})
        held = receipts(await one.lease())
        acking = asyncio.create_task(two.http.post("/queues/q/ack", json={"receipts": held}))
        await asyncio.sleep(1)
        reading.may_read.set()
        answer = await acking

    assert answer.status_code == 503


@virtual_time
async def test_what_was_to_be_deleted_of_a_deleted_queue_stays_in_the_new_one() -> None:
    """A deletion, and the trimming after a snapshot, compare the topic's id first."""
    store = InMemoryQueueStore()
    async with worker(store) as one, worker(store) as two:
        await one.call("PUT", "q", {})
        await two.call("GET", "q")
        old = (await two.queues.find("q")).engine.log
        store.readers["q"].may_read.clear()
        await make_anew(one, {})
        deleted = await two.http.delete("/queues/q")
        with pytest.raises(LogMoved):
            await old.trim(1)
        left = await one.call("GET", "q")

    assert deleted.status_code == 409
    assert left["ready"] == 0
    assert store.logs["q"].start == 0


@virtual_time
async def test_a_queue_created_at_two_workers_at_once_has_one_incarnation() -> None:
    """The first creation in the log counts, and the second is a change of its settings."""
    store = InMemoryQueueStore()
    async with worker(store) as one, worker(store) as two:
        await asyncio.gather(one.call("PUT", "q", {"lease_s": 7}), two.call("PUT", "q", {"lease_s": 7}))
        await one.put({"data": 1})
        held = receipts(await one.lease())
        done = await two.call("POST", "q/ack", {"receipts": held})

    assert done == {"done": 1, "stale": []}


def test_a_snapshot_of_a_deleted_queue_is_no_beginning() -> None:
    """A worker that stood still may store one in the log of the new queue, at any time.

    A trimmed log begins with a record of the queue's own, and only snapshots of its incarnation count.
    """
    own, other = Replica(0, snapshot_every=10), Replica(0, snapshot_every=10)
    records: list[LogRecord] = []
    belows: list[int] = []

    def write(value: bytes) -> None:
        records.append(LogRecord(len(records), len(records), value))
        folded = own.feed(records[-1])
        if folded is not None and folded.is_snapshot_due:
            snapshot = own.snapshot()
            belows.append(snapshot.below)
            for part in snapshot.parts:
                write(encode_record(b"w", 1, [part], b"own"))

    for name, at in ((b"own", own), (b"other", other)):
        settings = Configure(QueueSettings(incarnation=name))
        value = encode_record(b"w", 1, [settings])
        if at is own:
            write(value)
        else:
            other.feed(LogRecord(0, 0, value))
    for offset in range(1, 80):
        other.feed(LogRecord(offset, offset, encode_record(b"x", 1, [Seek((5,))], b"other")))
    stale = other.snapshot().parts
    for turn in range(45):
        write(encode_record(b"w", 1, [Lease(1, 1_000, (1_000,))], b"own"))
        if turn % 3 == 0:  # alone, and before and behind the queue's own snapshots
            write(encode_record(b"x", 1, [stale[0]], b"other"))
            write(encode_record(b"x", 1, [Ack(())], b"other"))

    for below in belows:
        late = Replica(below)
        for record in records[below:]:
            late.feed(record)
        assert late.state is not None
        assert own.state is not None
        assert encode_state(late.state) == encode_state(own.state)
    assert len(belows) > 3
    assert belows[-1] > 0


@virtual_time
async def test_a_log_without_incarnations_is_read_as_before() -> None:
    """Of a queue that an earlier version created, in the form that it wrote; its settings may change."""
    store = InMemoryQueueStore()
    await store.create("q", over="", partitions=1)
    for name, most in (("q", 5), ("q.dead", 0)):
        settings = ["settings", [1, "", 1, 30_000, most, 300_000, 86_400_000], None]
        value = msgspec.msgpack.encode([b"old", 1, [settings]])
        store.logs[name].records.append(LogRecord(0, 1, value))
    async with worker(store, snapshot_every=5) as one:
        await one.put(*({"data": n} for n in range(20)))
        changed = await one.call("PUT", "q", {"lease_s": 9})
        for _ in range(20):
            await one.call("POST", "q/ack", {"receipts": receipts(await one.lease())})
        await until(lambda: store.logs["q"].start > 0)
        async with worker(store) as two:
            status = await two.call("GET", "q")

    assert changed["settings"]["lease_s"] == 9.0
    assert (status["ready"], status["leased"]) == (0, 0)
