"""Queues on a real broker: snapshots and trimming, topics of others, killed workers, several of them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from aiokafka import AIOKafkaProducer

from services.queue.core.items import MAX_ITEM_BYTES
from services.queue.core.replica import LogMoved, LogRecord
from services.queue.core.snapshot import encode_state
from services.queue.kafka import cache
from services.queue.kafka import items as kafka_items
from services.queue.kafka.store import KafkaQueueStore
from shared.errors import InvalidInput, KafkaUnavailable
from shared.kafka.admin.catalog import TopicSpec, create_topics, delete_topics, list_all
from shared.kafka.admin.committed import KafkaGroup
from shared.kafka.admin.topics import ensure_topics, queue_log_topic, queue_topic
from shared.kafka.connect.access import KafkaAccess
from shared.kafka.connect.cluster import Cluster
from shared.kafka.read.offsets import EARLIEST, list_offsets
from shared.model.names import Names
from tests.servers import KafkaServer, free_port
from tests.unit.queue.world import Worker, receipts, worker
from tests.waiting import until


@contextlib.asynccontextmanager
async def on_kafka(kafka: str, namespace: str, **how: Any) -> AsyncIterator[Worker]:
    """A worker in this process."""
    access = KafkaAccess(bootstrap=kafka)
    async with (
        KafkaQueueStore.connected(access, Names(namespace), replication=1, ack_timeout_s=10) as store,
        worker(store, **how) as one,
    ):
        yield one


class QueueProcess:
    """A worker as a process; it keeps its port when it is started again."""

    def __init__(self, kafka: str, namespace: str) -> None:
        port = free_port()
        self._settings = {"BATON_KAFKA": kafka, "BATON_NAMESPACE": namespace, "BATON_PORT": str(port)}
        self.url = f"http://127.0.0.1:{port}"
        self.running: Process | None = None

    async def start(self) -> None:
        """Returns once it is ready."""
        running = self.running = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "services.queue", env=os.environ | self._settings
        )

        async def is_ready() -> bool:
            assert running.returncode is None, "the worker has ended"
            with contextlib.suppress(httpx.TransportError):
                return (await client.get("/readyz")).status_code == 200
            return False

        async with httpx.AsyncClient(base_url=self.url) as client:
            await until(is_ready)

    async def kill(self) -> None:
        """Ends it with SIGKILL."""
        assert self.running is not None
        with contextlib.suppress(ProcessLookupError):
            self.running.kill()
        await self.running.wait()

    async def stop(self) -> int:
        """Ends it in an orderly way; its exit code."""
        assert self.running is not None
        self.running.terminate()
        return await asyncio.wait_for(self.running.wait(), 20)

    def pause(self) -> None:
        """SIGSTOP."""
        assert self.running is not None
        self.running.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        assert self.running is not None
        self.running.send_signal(signal.SIGCONT)


@contextlib.asynccontextmanager
async def process(kafka: str, namespace: str) -> AsyncIterator[tuple[httpx.AsyncClient, QueueProcess]]:
    """A worker as a process, once it is ready, and a client of it."""
    running = QueueProcess(kafka, namespace)
    await running.start()
    try:
        async with httpx.AsyncClient(base_url=running.url, timeout=40) as client:
            yield client, running
    finally:
        await running.kill()


async def state_of(one: Worker) -> bytes:
    """A worker's present state."""
    return encode_state((await one.queues.find("q")).engine.state)


async def test_every_route_works_with_receipts_of_another_worker(kafka: str, namespace: str) -> None:
    """Put, lease, ack, release, reject, extend, redrive, seek and purge: two workers, no owner."""
    async with on_kafka(kafka, namespace) as one, on_kafka(kafka, namespace) as two:
        await one.call("PUT", "q", {})
        await one.put(*({"data": n, "id": str(n)} for n in range(5)))
        a, b, c, d, e = await two.lease(max=5)

        acked = await one.call("POST", "q/ack", {"receipts": [a["receipt"]]})
        extended = await one.call("POST", "q/extend", {"receipts": [b["receipt"]], "lease_s": 90})
        await one.call("POST", "q/release", {"receipts": [c["receipt"]]})
        await one.call("POST", "q/reject", {"receipts": [d["receipt"]], "why": "bad"})
        (again,) = await two.lease(max=10)
        stale = await one.call("POST", "q/ack", {"receipts": receipts([c, e])})
        shown = await until_shown(one, dead=1)
        redriven = await two.call("POST", "q/redrive")
        (back,) = await one.lease(max=10)
        sought = await one.call("POST", "q/seek", {"to": "earliest"})
        everything = await two.lease(max=10)
        purged = await two.call("POST", "q/purge")
        states = await same_states(one, two)

    assert (acked, extended) == ({"done": 1, "stale": []}, {"done": 1, "stale": []})
    assert (again["data"], again["attempt"], stale) == (2, 2, {"done": 1, "stale": [0]})
    assert (shown["leased"], shown["ready"]) == (2, 0)
    assert (redriven, back["data"], back["id"]) == ({"ready": 1}, 3, "3")
    assert sought == {"ready": 6}
    assert sorted(item["data"] for item in everything) == [0, 1, 2, 3, 4], "the redriven one is a repeat"
    assert purged == {"ready": 0}
    assert len(states) == 1


async def until_shown(one: Worker, **expected: int) -> dict[str, Any]:
    """The queue as soon as it is shown so."""

    async def shown() -> dict[str, Any] | None:
        found: dict[str, Any] = await one.call("GET", "q")
        return found if found.items() >= expected.items() else None

    found = await until(shown)
    assert found is not None
    return dict(found)


async def same_states(*workers: Worker) -> set[bytes]:
    """The states of the workers, once all are at the end of the log."""

    async def states() -> set[bytes] | None:
        engines = [(await one.queues.find("q")).engine for one in workers]
        if len({engine.next_offset for engine in engines}) > 1:
            return None
        return {encode_state(engine.state) for engine in engines}

    found = await until(states)
    assert found is not None
    return found


async def test_snapshots_trim_the_log_and_a_new_worker_has_the_same_state(kafka: str, namespace: str) -> None:
    """Kafka's tools see the lowest offset that is not done."""
    names = Names(namespace)
    place, log = (names.queue("q"), 0), (names.queue_log("q"), 0)
    async with on_kafka(kafka, namespace, snapshot_every=20) as one, Cluster(kafka) as cluster:
        await one.call("PUT", "q", {})
        await one.put(*({"data": n, "id": str(n)} for n in range(100)))
        for _ in range(30):
            acked = receipts(await one.lease(max=2))
            await one.call("POST", "q/ack", {"receipts": acked})

        async def is_settled() -> bool:
            # done again is done; a snapshot is left out while the one before is being stored
            await one.call("POST", "q/ack", {"receipts": acked})
            start = (await list_offsets(cluster, [log], EARLIEST))[log]
            committed = await KafkaGroup(cluster, names.queue_group("q")).committed([place])
            return start > 20 and committed[place].offset > 20

        await until(is_settled)
        async with on_kafka(kafka, namespace, snapshot_every=20) as two:
            states = await same_states(one, two)
            left = await two.lease(max=100)

    assert len(states) == 1
    assert [item["data"] for item in left] == list(range(60, 100))


async def test_done_items_are_deleted_after_a_while(kafka: str, namespace: str) -> None:
    """With `keep_s` 0 at the next snapshot; what is not done stays."""
    names = Names(namespace)
    place = names.queue("q"), 0
    async with on_kafka(kafka, namespace, snapshot_every=5) as one, Cluster(kafka) as cluster:
        await one.call("PUT", "q", {"keep_s": 0})
        for n in range(20):
            await one.put({"data": n})
        *first, held = receipts(await one.lease(max=10))
        found = await one.lease(max=10)
        await one.call("POST", "q/release", {"receipts": [held]})
        for receipt in first:
            await one.call("POST", "q/ack", {"receipts": [receipt]})

        async def is_deleted() -> bool:
            await one.call("POST", "q/ack", {"receipts": [first[0]]})
            return (await list_offsets(cluster, [place], EARLIEST))[place] > 0

        await until(is_deleted)
        start = (await list_offsets(cluster, [place], EARLIEST))[place]
        (again,) = await one.lease(max=10)

    assert 0 < start <= 9
    assert (again["data"], len(found)) == (9, 10)


async def test_a_queue_over_a_topic_with_transactions(kafka: str, namespace: str) -> None:
    """What was aborted is not handed out, and what marks transactions is no item."""
    names = Names(namespace)
    topic = names.topic("sessions")
    await ensure_topics(kafka, [TopicSpec(name=topic, partitions=2)], 1)
    async with AIOKafkaProducer(bootstrap_servers=kafka, transactional_id=namespace) as producer:
        for n in range(6):
            with contextlib.suppress(ValueError):
                async with producer.transaction():
                    await producer.send_and_wait(topic, b'{"n":%d}' % n, partition=n % 2)
                    if n == 3:
                        raise ValueError("aborts")
    async with on_kafka(kafka, namespace) as one:
        await one.call("PUT", "q", {"over": "sessions"})
        found: list[dict[str, Any]] = []

        async def has_all() -> bool:
            found.extend(await one.lease(max=10))
            return len(found) == 5

        await until(has_all)
        await one.call("POST", "q/ack", {"receipts": receipts(found)})
        nothing = await one.lease(max=10)
        shown = await until_shown(one, ready=0, leased=0)

    assert sorted(item["data"]["n"] for item in found) == [0, 1, 2, 4, 5]
    assert nothing == []
    assert shown["oldest_age_s"] is None


async def test_items_beyond_the_cache_are_read_again(
    kafka: str, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is bounded by the cache; what comes back after it was evicted comes from the log."""
    monkeypatch.setattr(cache, "AHEAD_BYTES", 4_000)
    monkeypatch.setattr(cache, "QUEUE_BYTES", 8_000)
    async with on_kafka(kafka, namespace) as one:
        await one.call("PUT", "q", {})
        await one.put(*({"data": [n, "x" * 500]} for n in range(60)))
        found = []
        while some := await one.lease(max=7):
            found += some
        await one.call("POST", "q/release", {"receipts": receipts(found[:20])})
        again = await one.lease(max=100)

    assert [item["data"][0] for item in found] == list(range(60))
    assert [item["data"][0] for item in again] == list(range(20))


async def test_a_seek_goes_back_beyond_what_a_worker_has_read(
    kafka: str, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that began at the frontier reads what lies before it, although nothing new is put."""
    monkeypatch.setattr(kafka_items, "REACH", 0)
    async with on_kafka(kafka, namespace) as one:
        await one.call("PUT", "q", {})
        await one.put(*({"data": n} for n in range(10)))
        await one.call("POST", "q/ack", {"receipts": receipts(await one.lease(max=8))})
        async with on_kafka(kafka, namespace) as two:
            rest = await two.lease(max=10)
            sought = await two.call("POST", "q/seek", {"to": "earliest"})
            again = await two.lease(max=10)

    assert [item["data"] for item in rest] == [8, 9]
    assert sought == {"ready": 10}
    assert [item["data"] for item in again] == list(range(10))


async def test_a_queue_that_was_made_anew_hands_out_its_own_items(kafka: str, namespace: str) -> None:
    """Deleted and created by another worker before this one has looked, with other partitions."""
    async with on_kafka(kafka, namespace) as one, on_kafka(kafka, namespace) as two:
        await one.call("PUT", "q", {})
        await one.put({"data": "old"}, {"data": "older"})
        old = receipts(await two.lease(lease_s=600))
        stale = asyncio.create_task(lease_for_ever(two))
        await one.call("DELETE", "q")
        await one.call("PUT", "q", {"partitions": 2})
        stale.cancel()
        refused = await one.http.post("/queues/q/ack", json={"receipts": old})
        await one.put({"data": "x" * (MAX_ITEM_BYTES - 20)}, {"data": "new"})
        found: list[dict[str, Any]] = []

        async def has_both() -> bool:
            answer = await two.http.post("/queues/q/lease", json={"max": 10})
            found.extend(answer.json().get("items", []))
            return len(found) >= 2

        await until(has_both)

    assert refused.status_code == 409
    assert sorted(len(item["data"]) for item in found) == [3, MAX_ITEM_BYTES - 20]


async def lease_for_ever(at: Worker) -> None:
    """So that the worker writes into the log, whichever it is, until it notices that another has the name."""
    while True:
        await at.http.post("/queues/q/lease", json={})


@pytest.mark.parametrize("more", [0, 8], ids=["shorter", "longer"])
@pytest.mark.timeout(120)
async def test_items_that_were_made_anew_under_the_log_are_refused_until_they_are_sought(
    kafka: str, namespace: str, more: int
) -> None:
    """Else new items below the frontier would never be handed out, or old ones in place of new ones.

    A worker that is running notices also that a topic which is long enough is another one.
    """
    names = Names(namespace)
    async with on_kafka(kafka, namespace) as one, Cluster(kafka) as cluster:
        await one.call("PUT", "q", {})
        await one.put(*({"data": f"old {n}"} for n in range(5)))
        await one.call("POST", "q/ack", {"receipts": receipts(await one.lease(max=3))})
        await delete_topics(cluster, [names.queue("q")])
        await until(lambda: is_made(cluster, queue_topic(names, "q", 1)))
        async with AIOKafkaProducer(bootstrap_servers=kafka) as producer:
            for n in range(1 + more):
                await producer.send_and_wait(names.queue("q"), b'"new %d"' % n)

        async def is_noticed() -> bool:
            remarks: list[str] = (await one.http.get("/readyz")).json().get("remarks", [])
            return any("seek the queue back" in remark for remark in remarks)

        await until(is_noticed)
        refused = await one.http.post("/queues/q/lease", json={"max": 10})
        put = await one.http.post("/queues/q/items", json={"data": "more"})
        if not more:
            async with on_kafka(kafka, namespace) as two:
                lease = await two.http.post("/queues/q/lease", json={})
                assert lease.status_code == 503, "a new worker sees it, too"
        await one.call("POST", "q/seek", {"to": "earliest"})
        found = await one.lease(max=10)

    assert (refused.status_code, put.status_code) == (503, 503)
    assert [item["data"] for item in found] == [f"new {n}" for n in range(1 + more)]


@pytest.mark.parametrize("more", [-1, 0, 1], ids=["shorter", "as long", "longer"])
async def test_a_log_that_was_made_anew_is_noticed_however_long_it_is(
    kafka: str, namespace: str, more: int
) -> None:
    """Also where its reader waits for a record that the new log does not have, so none can be compared."""
    names, access = Names(namespace), KafkaAccess(bootstrap=kafka)
    topic = queue_log_topic(names, "q")
    await ensure_topics(kafka, [topic], 1)
    async with (
        KafkaQueueStore.connected(access, names, replication=1, ack_timeout_s=10) as store,
        KafkaQueueStore.connected(access, names, replication=1, ack_timeout_s=10) as other,
        Cluster(kafka) as cluster,
    ):
        with contextlib.closing(store.open_log("q")) as log:
            for value in (b"one", b"two"):
                await log.append(value)
            first, end = await log.bounds()
            log.seek(first)

            read: list[LogRecord] = []
            while len(read) < end:
                read += await log.read(1.0)
            await delete_topics(cluster, [topic.name])
            await until(lambda: is_made(cluster, topic))
            with contextlib.closing(other.open_log("q")) as anew:
                for _ in range(2 + more):
                    await anew.append(b"new")

            async def is_noticed() -> bool:
                try:
                    await log.read(0.1)
                except LogMoved:
                    return True
                return False

            await until(is_noticed)


async def is_made(cluster: Cluster, topic: TopicSpec) -> bool:
    """Whether the topic could be created: one of the name is being deleted for a moment."""
    try:
        return (await create_topics(cluster, [topic], 1))[topic.name]
    except (KafkaUnavailable, InvalidInput):
        return False


async def test_a_deleted_queue_leaves_no_offsets_behind(kafka: str, namespace: str) -> None:
    """Also one over a topic of others, which stays: a new queue of the name would look half done."""
    names = Names(namespace)
    await ensure_topics(kafka, [TopicSpec(name=names.topic("sessions"))], 1)
    async with on_kafka(kafka, namespace, snapshot_every=3) as one, Cluster(kafka) as cluster:
        group = KafkaGroup(cluster, names.queue_group("q"))
        await one.call("PUT", "q", {"over": "sessions"})

        async def is_committed() -> bool:
            await one.lease()
            return bool(await group.all_committed())

        await until(is_committed)
        await one.call("DELETE", "q")

        async def is_forgotten() -> bool:
            return not await group.all_committed()

        await until(is_forgotten)


@pytest.mark.timeout(120)
async def test_a_killed_workers_leases_go_on_and_end(kafka: str, namespace: str) -> None:
    """Nobody gets the item before its time, then another worker's client does; stopping in order is quick."""
    async with process(kafka, namespace) as (one, killed), process(kafka, namespace) as (two, stopped):
        await one.put("/queues/q", json={"lease_s": 3})
        await one.post("/queues/q/items", json=[{"data": 1}, {"data": 2}])
        (item,) = (await one.post("/queues/q/lease")).json()["items"]
        await killed.kill()

        other = (await two.post("/queues/q/lease", json={"max": 10, "lease_s": 60})).json()["items"]
        (again,) = (await two.post("/queues/q/lease", json={"max": 10, "wait_s": 10})).json()["items"]
        stale = await two.post("/queues/q/ack", json={"receipts": [item["receipt"]]})
        poll = asyncio.create_task(two.post("/queues/q/lease", json={"wait_s": 20, "max": 1, "lease_s": 60}))
        await two.post("/queues/q/ack", json={"receipts": [again["receipt"]]})
        code = await stopped.stop()
        with contextlib.suppress(httpx.TransportError):
            await poll

    assert [one["data"] for one in other] == [2]
    assert (again["data"], again["attempt"]) == (1, 2)
    assert again["until"] - 3000 >= item["until"]
    assert stale.status_code == 409
    assert code == 0


@pytest.mark.timeout(120)
async def test_a_broker_that_restarts_loses_nothing(kafka_server: KafkaServer, namespace: str) -> None:
    """While it is away requests get a 503; afterwards everything that was answered stands."""
    async with on_kafka(kafka_server.address, namespace) as one:
        await one.call("PUT", "q", {"lease_s": 600})
        await one.put(*({"data": n} for n in range(10)))
        held = await one.lease(max=3)
        before = await state_of(one)
        kafka_server.kill()
        kafka_server.start()

        async def acked() -> bool:
            answer = await one.http.post("/queues/q/ack", json={"receipts": receipts(held)})
            assert answer.status_code in (200, 503), answer.text
            return answer.status_code == 200

        await until(acked)
        left = await one.lease(max=10, wait_s=20)

    assert before
    assert [item["data"] for item in left] == list(range(3, 10))


@pytest.mark.timeout(120)
async def test_one_partition_keeps_the_order_of_the_puts(kafka: str, namespace: str) -> None:
    """Strictly, without failures: by several workers, and many clients at once, in leases of any size."""
    count = 600
    async with on_kafka(kafka, namespace) as one, on_kafka(kafka, namespace) as two:
        await one.call("PUT", "q", {"lease_s": 600})
        for first in range(0, count, 20):
            await random.choice((one, two)).put(*({"data": n} for n in range(first, first + 20)))
        found: list[dict[str, Any]] = []

        async def client(number: int) -> None:
            at = (one, two)[number % 2]
            while some := await at.lease(max=number % 7 + 1, wait_s=0.2):
                found.extend(some)

        await asyncio.gather(*map(client, range(20)))

    # a lease is a record of the log: their order is the order in which items were handed out
    leases = sorted(found, key=lambda item: [int(part) for part in item["receipt"].split("/")[2::-1]])
    assert [item["data"] for item in leases] == list(range(count))


async def test_a_log_with_the_times_of_its_writers_is_refused(kafka: str, namespace: str) -> None:
    """An operator has made it: leases would end by the clocks of workers."""
    log = TopicSpec(name=Names(namespace).queue_log("q"), configs={"message.timestamp.type": "CreateTime"})
    await ensure_topics(kafka, [log], 1)
    async with on_kafka(kafka, namespace) as one:
        refused = await one.http.put("/queues/q", json={})
        left = await topics_of(kafka, namespace)

    assert refused.status_code == 422
    assert "LogAppendTime" in refused.json()["detail"]
    assert left == {log.name}


async def topics_of(kafka: str, namespace: str) -> set[str]:
    """The topics of the namespace."""
    async with Cluster(kafka) as cluster:
        return {topic for topic in await list_all(cluster) if topic.startswith(f"{namespace}.")}


async def test_a_name_that_kafka_takes_for_another_ones_leaves_no_topics_behind(
    kafka: str, namespace: str
) -> None:
    """It does not tell `.` from `_` in names of metrics, so it rejects one of the four topics."""
    async with on_kafka(kafka, namespace) as one:
        await one.call("PUT", "mail", {})
        before = await topics_of(kafka, namespace)
        refused = [await one.http.put(f"/queues/mail_{end}", json={}) for end in ("log", "dead")]
        left = await topics_of(kafka, namespace)
        await one.call("PUT", "mail-log", {})

    assert [answer.status_code for answer in refused] == [422, 422]
    assert len(before) == 4
    assert left == before


@pytest.mark.timeout(120)
async def test_a_letter_that_the_broker_refuses_goes_without_its_value(kafka: str, namespace: str) -> None:
    """A record of others may be larger than any letter; those beside it are buried once."""
    topic = Names(namespace).topic("large")
    large = b'"%s"' % os.urandom(1_500_000).hex().encode()
    await ensure_topics(kafka, [TopicSpec(name=topic, configs={"max.message.bytes": "10000000"})], 1)
    async with AIOKafkaProducer(bootstrap_servers=kafka, max_request_size=10_000_000) as producer:
        for value in (large, b"1", b"2"):
            await producer.send_and_wait(topic, value, partition=0)
    async with on_kafka(kafka, namespace) as one:
        await one.call("PUT", "q", {"over": "large", "max_attempts": 1, "lease_s": 600})
        found: list[dict[str, Any]] = []

        async def has_all() -> bool:
            found.extend(await one.lease(max=10))
            return len(found) == 3

        await until(has_all)
        done = await one.call("POST", "q/reject", {"receipts": receipts(found), "why": "bad"})
        letters: list[dict[str, Any]] = []

        async def has_letters() -> bool:
            letters.extend(await one.lease("q.dead", max=10, lease_s=600))
            return len(letters) == 3

        await until(has_letters)

    headers = {"attempts": "1", "why": "bad"}
    bare = headers | {"place": "large/0/0", "size": str(len(large))}
    assert done == {"done": 3, "stale": []}
    assert [item["headers"] for item in letters if "raw" in item] == [bare]
    assert sorted(item["data"] for item in letters if "raw" not in item) == [1, 2]
