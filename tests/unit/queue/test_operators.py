"""What operators do while clients go on: purge, seek, redrive, change settings, and look at all queues."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from services.queue.core.commands import Lease
from services.queue.core.fold import LeaseAnswer
from services.queue.core.items import ItemRecord
from services.queue.ports import Unstored
from tests.fakes.queues import InMemoryCommandLog, InMemoryItemLog, InMemoryQueueStore
from tests.fakes.virtual_time import until, virtual_time
from tests.unit.queue.world import Worker, receipts, worker


def between(monkeypatch: pytest.MonkeyPatch, act: Callable[[], Awaitable[None]]) -> None:
    """Lets this happen after a handler has looked for the end of the items, and before its command."""
    find, acts = InMemoryItemLog.find, [act]

    async def found(self: InMemoryItemLog, to: int | str) -> list[int]:
        result = list(await find(self, to))
        if to == "latest" and acts:
            await acts.pop()()
        return result

    monkeypatch.setattr(InMemoryItemLog, "find", found)


@pytest.mark.parametrize(("path", "body"), [("purge", {}), ("seek", {"to": "latest"})])
@virtual_time
async def test_what_is_put_and_acked_during_a_purge_or_a_seek_to_the_end_stays_done(
    path: str, body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody gets an item after its ack, and nobody one that another client holds."""
    async with worker(InMemoryQueueStore()) as one:
        await one.call("PUT", "q", {})
        await one.put({"data": "old"})
        held: list[str] = []

        async def meanwhile() -> None:
            await one.put({"data": 1}, {"data": 2})
            _, first, second = receipts(await one.lease(max=3))
            await one.call("POST", "q/ack", {"receipts": [first]})
            held.append(second)

        between(monkeypatch, meanwhile)
        await one.call("POST", f"q/{path}", body)
        again = await one.lease(max=10)
        done = await one.call("POST", "q/ack", {"receipts": held})

    assert again == []
    assert done == {"done": 1, "stale": []}


@virtual_time
async def test_a_seek_of_one_partition_leaves_the_others_where_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Wherever they are when the command is folded, not when it was written."""
    store = InMemoryQueueStore()
    async with worker(store) as one:
        await one.call("PUT", "q", {"partitions": 2})
        await one.put(*({"data": n} for n in range(4)))

        async def meanwhile() -> None:
            await one.call("POST", "q/ack", {"receipts": receipts(await one.lease(max=4))})

        between(monkeypatch, meanwhile)
        await one.call("POST", "q/seek", {"to": {"0": 0}})
        again = await one.lease(max=10)

    assert [item["receipt"].split("/")[0] for item in again] == ["0", "0"]


@virtual_time
async def test_a_lease_looks_on_behind_repeats() -> None:
    """Without `wait_s`, too: else a client that works until nothing is left would stop too early."""
    async with worker(InMemoryQueueStore()) as one:
        await one.call("PUT", "q", {})
        await one.put(*({"data": n, "id": "a"} for n in range(5)), {"data": "b"})
        (first,) = await one.lease()
        (second,) = await one.lease()

    assert (first["data"], second["data"]) == (0, "b")


@virtual_time
async def test_a_lease_and_the_age_look_on_behind_offsets_without_an_item() -> None:
    """As aborted transactions leave them, never leased or leased by a worker that died."""
    store = InMemoryQueueStore()
    store.make_topic("t").partitions[0] += [None, None, None, ItemRecord(value=b"1", append_ms=1_000_000)]
    async with worker(store) as one:
        await one.call("PUT", "q", {"over": "t", "lease_s": 1})
        await asyncio.sleep(5)
        new = await one.call("GET", "q")
        leasing = await one.queues.find("q")
        await leasing.engine.submit(Lease(4, 1_000, (4,)), LeaseAnswer)
        leased = await one.call("GET", "q")
        metrics = (await one.http.get("/metrics")).text
        await asyncio.sleep(2)
        (item,) = await one.lease()

    assert 5 <= new["oldest_age_s"] <= leased["oldest_age_s"] < 6
    assert 'baton_queue_oldest_age_seconds{queue="q"} 0.0' not in metrics
    assert item["data"] == 1


@virtual_time
async def test_an_age_that_is_not_known_is_not_told() -> None:
    """Neither as 0, which an alert takes for good, nor as it was: while Kafka is away it grows."""
    store = InMemoryQueueStore()
    told = []
    async with worker(store) as one:
        await one.call("PUT", "q", {})
        await one.put({"data": 1})
        for is_away in (False, True):
            store.is_away = is_away
            await asyncio.sleep(5)
            told.append("baton_queue_oldest_age_seconds{" in (await one.http.get("/metrics")).text)

    assert told == [True, False]


class BlockedStore(InMemoryQueueStore):
    """The log of the queue `slow` cannot be read, once `is_blocked`."""

    is_blocked = False

    def open_log(self, name: str) -> InMemoryCommandLog:
        log = super().open_log(name)
        if self.is_blocked and name == "slow":
            log.may_read.clear()
        return log


@virtual_time
async def test_a_queue_that_cannot_be_asked_is_listed_without_numbers() -> None:
    """At once, and the others with theirs."""
    store = BlockedStore()
    async with worker(store) as one:
        for name in ("q", "slow"):
            await one.call("PUT", name, {})
        store.is_blocked = True
        async with worker(store) as two:
            await two.call("GET", "q")
            began_s = asyncio.get_running_loop().time()
            q, slow = (await two.http.get("/queues")).json()["queues"]
            took_s = asyncio.get_running_loop().time() - began_s

    assert (q["queue"], q["ready"], slow["queue"]) == ("q", 0, "slow")
    assert {slow[name] for name in ("ready", "leased", "waiting", "dead", "oldest_age_s")} == {None}
    assert took_s < 2


@virtual_time
async def test_an_item_that_dies_again_after_a_seek_has_a_letter_again() -> None:
    """Although its first letter was acked a moment ago: it is no repeat of that one."""
    async with worker(InMemoryQueueStore()) as one:
        await one.call("PUT", "q", {})
        await one.put({"data": 1})
        letters = []
        for _ in range(2):
            await one.call("POST", "q/reject", {"receipts": receipts(await one.lease()), "why": "bad"})
            (letter,) = await one.lease("q.dead", wait_s=1)
            letters.append(letter["data"])
            await one.call("POST", "q.dead/ack", {"receipts": [letter["receipt"]]})
            await one.call("POST", "q/seek", {"to": "earliest"})

    assert letters == [1, 1]


async def lose_items(store: InMemoryQueueStore, one: Worker) -> None:
    """Five items are leased; then their topic is made anew while the log stays."""
    await one.call("PUT", "q", {})
    await one.put(*({"data": n} for n in range(5)))
    await one.call("POST", "q/ack", {"receipts": receipts(await one.lease(max=5))})
    store.topics["q"].partitions[0].clear()


@virtual_time
async def test_a_topic_that_is_shorter_than_the_log_says_is_refused_until_it_is_sought() -> None:
    """New items would lie below the frontier, and nobody would ever get them."""
    store = InMemoryQueueStore()
    async with worker(store) as one:
        await lose_items(store, one)
    async with worker(store) as two:
        put = await two.http.post("/queues/q/items", json={"data": "lost"})
        lease = await two.http.post("/queues/q/lease", json={})
        shown = await two.call("GET", "q")
        remarks = (await two.http.get("/readyz")).json()["remarks"]
        await two.call("POST", "q/seek", {"to": "earliest"})
        await two.put({"data": "new"})
        (item,) = await two.lease()

    assert (put.status_code, lease.status_code) == (503, 503)
    assert "seek the queue back" in lease.json()["detail"]
    assert shown["queue"] == "q"
    assert remarks == [lease.json()["detail"]]
    assert (item["data"], item["attempt"]) == ("new", 1)


@virtual_time
async def test_settings_that_two_change_at_once_are_both_kept() -> None:
    """At two workers, of which neither has read the other's change."""
    store = InMemoryQueueStore()
    async with worker(store) as one, worker(store) as two:
        await one.call("PUT", "q", {})
        await two.call("GET", "q")
        await asyncio.gather(
            one.call("PUT", "q", {"lease_s": 9}), two.call("PUT", "q", {"max_attempts": 2, "keep_s": 7})
        )
        shown = (await one.call("GET", "q"))["settings"]
        dead = (await one.call("GET", "q.dead"))["settings"]

    assert (shown["lease_s"], shown["max_attempts"], shown["keep_s"]) == (9, 2, 7)
    assert (dead["lease_s"], dead["max_attempts"], dead["keep_s"]) == (30, 0, 7)


@virtual_time
async def test_a_rejection_that_fails_takes_nothing_from_the_lease() -> None:
    """Its client may go on working, and nobody else gets the item before the lease ends."""
    async with worker(InMemoryQueueStore()) as one:
        await one.call("PUT", "q", {})
        await one.put({"data": 1})
        held = receipts(await one.lease(lease_s=600))
        letters = (await one.queues.find("q.dead")).items

        async def refused(items: Any) -> Unstored:
            return Unstored(unsure=range(len(items)))

        letters.append = refused  # type: ignore[method-assign]
        answer = await one.http.post("/queues/q/reject", json={"receipts": held})
        await asyncio.sleep(500)
        nothing = await one.lease()
        done = await one.call("POST", "q/ack", {"receipts": held})

    assert answer.status_code == 503
    assert nothing == []
    assert done == {"done": 1, "stale": []}


@virtual_time
async def test_a_request_that_began_before_its_queue_was_read_anew_ends_at_once() -> None:
    """It holds the queue of before, which nobody follows any more."""
    store = InMemoryQueueStore()
    async with worker(store) as one:
        await one.call("PUT", "q", {})
        before = await one.queues.find("q")
        store.is_away = True
        await store.readers["q"].interrupt()
        store.is_away = False
        await until(lambda: dict(one.queues.all())["q"] is not before)
        began_s = asyncio.get_running_loop().time()
        for asked in (before.lease(1, 1_000), before.poll(1, 1_000, 20)):
            with pytest.raises(Exception, match="read again"):
                await asked
        took_s = asyncio.get_running_loop().time() - began_s

    assert took_s < 1
