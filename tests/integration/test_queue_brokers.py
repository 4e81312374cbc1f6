"""A queue on three brokers, of which one after another dies or stands still: nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from services.queue.kafka.store import KafkaQueueStore
from shared.kafka.admin.catalog import change_settings, read_settings
from shared.kafka.admin.topics import MIN_INSYNC
from shared.kafka.connect.access import KafkaAccess
from shared.kafka.connect.cluster import Cluster
from shared.kafka.wire.metadata import MetadataRequest
from shared.model.names import Names
from tests.integration.test_queue_service import same_states
from tests.kafka_cluster import KafkaCluster, kafka_cluster
from tests.unit.queue.world import Worker, receipts, worker
from tests.waiting import running, until

WITHIN_S = 60.0
LEASE_S = 5
CLIENTS = 6


class Ledger:
    """What was answered with 200; and what an ack was asked for, which may have had its effect unheard."""

    def __init__(self) -> None:
        self.put: set[int] = set()
        self.acked: set[int] = set()
        self.asked: set[int] = set()
        self.wrong: list[str] = []


@contextlib.asynccontextmanager
async def on_brokers(brokers: KafkaCluster, names: Names) -> AsyncIterator[Worker]:
    """A worker that asks for three replicas."""
    access = KafkaAccess(bootstrap=brokers.address)
    async with (
        KafkaQueueStore.connected(access, names, replication=3, ack_timeout_s=5) as store,
        worker(store, snapshot_every=200) as one,
    ):
        yield one


async def put(workers: list[Worker], ledger: Ledger) -> None:
    """Puts item after item, whatever the brokers do; one without a 200 is put again, under its id."""

    async def is_put(n: int) -> bool:
        answer = await workers[n % len(workers)].http.post("/queues/q/items", json={"data": n, "id": str(n)})
        return answer.status_code == 200

    for n in itertools.count():
        await until(partial(is_put, n))
        ledger.put.add(n)


async def work(workers: list[Worker], ledger: Ledger, number: int) -> None:
    """Leases at one worker and acks at the next."""
    for turn in itertools.count(number):
        lease, ack = workers[turn % len(workers)], workers[(turn + 1) % len(workers)]
        acked = frozenset(ledger.acked)
        body = {"max": 5, "wait_s": 1, "lease_s": LEASE_S}
        answer = await lease.http.post("/queues/q/lease", json=body)
        items: list[dict[str, Any]] = answer.json().get("items", [])
        ledger.wrong += [
            f"{item['data']} was leased after its ack" for item in items if item["data"] in acked
        ]
        if not items:
            await asyncio.sleep(0.05)
            continue
        ledger.asked |= {item["data"] for item in items}
        answer = await ack.http.post("/queues/q/ack", json={"receipts": receipts(items)})
        if answer.status_code == 200:
            stale = set(answer.json()["stale"])
            ledger.acked |= {item["data"] for index, item in enumerate(items) if index not in stale}


async def progress(ledger: Ledger, more: int) -> None:
    """Returns once so many more items were acked."""
    goal = len(ledger.acked) + more
    await until(lambda: len(ledger.acked) >= goal, lambda: f"{len(ledger.acked)} of {goal}", WITHIN_S)


@pytest.mark.soak
@pytest.mark.timeout(900)
async def test_one_broker_after_another_is_away_and_nothing_acknowledged_is_lost(namespace: str) -> None:
    """Killed, stopped in order, standing still: two brokers go on, because two replicas are in step."""
    names, ledger = Names(namespace), Ledger()
    with kafka_cluster() as brokers:
        async with on_brokers(brokers, names) as one, on_brokers(brokers, names) as two:
            workers = [one, two]
            await one.call("PUT", "q", {"max_attempts": 0})
            async with Cluster(brokers.address) as cluster:
                insync = await read_settings(cluster, [names.queue("q"), names.queue_log("q")], [MIN_INSYNC])
            async with contextlib.AsyncExitStack() as load:
                await load.enter_async_context(running(put(workers, ledger)))
                for number in range(CLIENTS):
                    await load.enter_async_context(running(work(workers, ledger, number)))
                await progress(ledger, 50)
                for node in brokers.nodes.values():
                    for leave in (node.kill, node.stop, node.pause):
                        await asyncio.to_thread(leave)
                        await progress(ledger, 50)
                        node.resume()
                        await asyncio.to_thread(brokers.start)
                        await until(brokers.is_whole, within_s=WITHIN_S)
            await drain(workers, ledger)
            states = await same_states(*workers)

    assert {found[MIN_INSYNC].value for found in insync.values()} == {"2"}
    assert ledger.wrong == []
    assert ledger.put <= ledger.asked
    assert len(ledger.acked) > 400
    assert len(states) == 1


@pytest.mark.soak
@pytest.mark.timeout(600)
async def test_with_one_replica_left_min_insync_replicas_decides_whether_a_put_is_answered(
    namespace: str,
) -> None:
    """Five brokers, so that the controllers go on: with 2 it is refused, with 1 the last one answers alone.

    So nothing but this setting keeps a 200 from what one broker alone has, and may lose.
    """
    names, statuses = Names(namespace), dict[str, list[int]]()
    with kafka_cluster(5) as brokers:
        async with on_brokers(brokers, names) as one, Cluster(brokers.address) as cluster:
            await one.call("PUT", "q", {})
            topic = names.queue("q")
            numbers = await replicas_of(cluster, topic)
            await one.put({"data": 0, "id": "before"})
            for least in ("2", "1"):
                await change_settings(cluster, topic, {MIN_INSYNC: least})
                away = [brokers.nodes[number] for number in numbers[:2]]
                for node in away:
                    await asyncio.to_thread(node.kill)
                statuses[least] = await puts(one, f"with-{least}", until_s=20)
                await asyncio.to_thread(brokers.start)
                await until(brokers.is_whole, within_s=WITHIN_S)

    assert set(statuses["2"]) == {503}
    assert statuses["1"][-1] == 200


async def replicas_of(cluster: Cluster, topic: str) -> list[int]:
    """The brokers that have a replica of the topic's only partition."""
    answer = await cluster.ask_any(MetadataRequest([topic]))
    ((_, _, _, _, replicas, *_),) = answer.topics[0][4]
    return list(replicas)


async def puts(one: Worker, name: str, until_s: float) -> list[int]:
    """The statuses of puts, until one is answered with 200, or for that long."""
    loop = asyncio.get_running_loop()
    statuses: list[int] = []
    end_s = loop.time() + until_s
    while loop.time() < end_s and 200 not in statuses:
        item = {"data": name, "id": name}
        statuses.append((await one.http.post("/queues/q/items", json=item)).status_code)
    return statuses


async def drain(workers: list[Worker], ledger: Ledger) -> None:
    """Clients take what is left, until every worker says that nothing is."""

    async def is_empty() -> bool:
        shown = [(await one.http.get("/queues/q")).json() for one in workers]
        return all(one.get("ready") == one.get("leased") == one.get("waiting") == 0 for one in shown)

    async with contextlib.AsyncExitStack() as load:
        for number in range(CLIENTS):
            await load.enter_async_context(running(work(workers, ledger, number)))
        await until(is_empty, within_s=WITHIN_S)
