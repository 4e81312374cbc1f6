"""Several workers on one port, as real processes: they share the work, are restarted, and stop together."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal

import httpx
import pytest

from shared.model.names import Names
from shared.zookeeper.connection import ZooKeeper
from tests.integration.test_producer_service import JSON, Running, producer
from tests.servers import KafkaServer, free_port
from tests.waiting import until

POSTS = 40
ALONE = {"connection": "close"}
"""A request with this header has its own connection, which the kernel assigns to a worker."""


async def pids_of(znodes: ZooKeeper, names: Names) -> dict[str, int]:
    """The process id of each registered producer, by producer id."""
    found = {}
    for entry in await znodes.children(names.producers):
        znode = await znodes.get(names.producer(entry))
        if znode is not None:
            found[entry] = json.loads(znode.data)["pid"]
    return found


async def two_pids(znodes: ZooKeeper, names: Names) -> dict[str, int]:
    """The process ids of both workers, once they are registered."""

    async def both() -> dict[str, int]:
        found = await pids_of(znodes, names)
        return found if len(found) == 2 else {}

    return await until(both)


async def all_ready(running: Running) -> None:
    """Waits until both workers run, and 16 connections in a row have reached a ready one."""

    async def both_live() -> bool:
        return await reported(running, "baton_workers") == 2

    async def in_a_row() -> bool:
        answers = []
        with contextlib.suppress(httpx.TransportError):
            answers = [await running.client.get("/readyz", headers=ALONE) for _ in range(16)]
        return bool(answers) and all(answer.status_code == 200 for answer in answers)

    await until(both_live)
    await until(in_a_row)


async def post(running: Running) -> int:
    """The status for one fragment."""
    return (await running.client.post("/fragments", content=b'{"key":"a"}', headers=JSON | ALONE)).status_code


async def post_many(running: Running, count: int) -> None:
    """Posts `count` fragments, each until it gets a 200."""
    for _ in range(count):
        status = 0
        while status != 200:
            with contextlib.suppress(httpx.TransportError):
                status = await post(running)


async def reported(running: Running, metric: str) -> float | None:
    """The metric's value, from whichever worker gets the connection."""
    with contextlib.suppress(httpx.TransportError):
        text = (await running.client.get("/metrics", headers=ALONE)).text
        found = re.search(rf"(?m)^{re.escape(metric)} (\S+)$", text)
        return None if found is None else float(found[1])
    return None


def is_alive(pid: int) -> bool:
    """Whether the process exists and is not a zombie."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_workers_share_the_port_and_their_numbers(kafka: str, zookeeper: str, namespace: str) -> None:
    """Each has its own id in ZooKeeper; any of them reports the totals of all; a dead one is restarted."""
    names = Names(namespace)
    settings = {"kafka": kafka, "zookeeper": zookeeper, "namespace": namespace, "streams": 1}
    async with ZooKeeper(zookeeper, 4.0) as znodes, producer(**settings, producer="p", workers=2) as running:
        await running.until_ready()
        first = await two_pids(znodes, names)
        await post_many(running, POSTS)

        async def is_summed() -> bool:
            sums = [await reported(running, "baton_fragments_stored_total") for _ in range(6)]
            return sums == [POSTS] * 6 and await reported(running, "baton_workers") == 2

        async def is_the_same_at_each() -> bool:
            sums = []
            for _ in range(6):
                answer = (await running.client.get("/status", headers=ALONE)).json()["producers"]
                assert [worker["id"] for worker in answer] == ["p.0", "p.1"]
                sums.append(sum(worker["accepted"] for worker in answer))
            return sums == [POSTS] * 6

        await until(is_summed)
        # by chance one worker has answered all; the other may have older numbers for a second
        await until(is_the_same_at_each)
        os.kill(first["p.1"], signal.SIGKILL)

        async def is_back() -> dict[str, int]:
            found = await two_pids(znodes, names)
            return found if found.get("p.1") not in (None, first["p.1"]) else {}

        second = await until(is_back)
        await all_ready(running)
        await post_many(running, POSTS)

        async def is_all_reported() -> bool:
            return all(
                [await reported(running, "baton_fragments_stored_total") == 2 * POSTS for _ in range(6)]
            )

        await until(is_all_reported)
        running.process.send_signal(signal.SIGTERM)
        _, log = await asyncio.wait_for(running.process.communicate(), 60)
        left = await pids_of(znodes, names)

    assert set(first) == {"p.0", "p.1"}
    assert len({running.process.pid, *first.values()}) == 3
    assert second["p.0"] == first["p.0"]
    assert running.process.returncode == 0
    assert left == {}
    assert not any(map(is_alive, (*first.values(), *second.values())))
    lines = [json.loads(line) for line in log.splitlines()]
    (ended,) = [line for line in lines if line["message"] == "worker exited, restarting"]
    assert (ended["number"], ended["ended"]) == (1, -signal.SIGKILL)
    assert {line["worker"] for line in lines if line["message"] == "stream table read"} == {0, 1}


@pytest.mark.parametrize("workers", [1, 2])
async def test_requests_in_flight_are_finished_before_the_end(
    kafka_server: KafkaServer, zookeeper: str, namespace: str, workers: int
) -> None:
    """SIGTERM reaches every worker: requests that wait for Kafka get their answers; new connections fail."""
    settings = {"kafka": kafka_server.address, "zookeeper": zookeeper, "namespace": namespace, "streams": 1}
    async with producer(**settings, workers=workers) as running:
        await (all_ready(running) if workers > 1 else running.until_ready())
        kafka_server.pause()
        waiting = asyncio.gather(*(asyncio.create_task(post(running)) for _ in range(8)))

        async def all_wait() -> bool:
            return await reported(running, "baton_inflight_bytes") == 8 * len(b'{"key":"a"}')

        async def is_closed() -> bool:
            return await reported(running, "baton_inflight_bytes") is None

        await until(all_wait)
        running.process.send_signal(signal.SIGTERM)
        await until(is_closed)
        kafka_server.resume()
        statuses = await asyncio.wait_for(waiting, 60)
        await asyncio.wait_for(running.process.communicate(), 60)

    assert statuses == [200] * 8
    assert running.process.returncode == 0


async def test_a_second_signal_kills_all_at_once(
    kafka_server: KafkaServer, zookeeper: str, namespace: str
) -> None:
    """Even while a request waits for Kafka, the parent and its workers are gone at once."""
    settings = {"kafka": kafka_server.address, "zookeeper": zookeeper, "namespace": namespace, "streams": 1}
    async with (
        ZooKeeper(zookeeper, 4.0) as znodes,
        producer(**settings, workers=2, ack_timeout_s=60) as running,
    ):
        pids = await two_pids(znodes, Names(namespace))
        await all_ready(running)
        kafka_server.pause()
        waiting = asyncio.create_task(post(running))

        async def waits() -> bool:
            return bool(await reported(running, "baton_inflight_bytes"))

        await until(waits)
        running.process.send_signal(signal.SIGTERM)
        assert running.process.stderr is not None
        while b"stopping in order" not in await asyncio.wait_for(running.process.stderr.readline(), 60):
            pass
        running.process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(running.process.wait(), 10)
        await until(lambda: not any(map(is_alive, pids.values())))
        waiting.cancel()
        await asyncio.wait({waiting})

    assert running.process.returncode == 128 + signal.SIGTERM


async def test_workers_do_not_outlive_their_parent(kafka: str, zookeeper: str, namespace: str) -> None:
    """When the parent is killed, its workers stop in order."""
    names = Names(namespace)
    settings = {"kafka": kafka, "zookeeper": zookeeper, "namespace": namespace, "streams": 1}
    async with ZooKeeper(zookeeper, 4.0) as znodes:
        async with producer(**settings, workers=2) as running:
            await all_ready(running)
            pids = await two_pids(znodes, names)
            running.process.kill()
            await until(lambda: not any(map(is_alive, pids.values())))
        left = await pids_of(znodes, names)

    assert left == {}


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_start_fault_ends_all_workers(
    kafka: str, zookeeper: str, namespace: str, workers: int
) -> None:
    """Another number of streams than stored: one sentence, exit code 1, and no restarts."""
    settings = {"kafka": kafka, "zookeeper": zookeeper, "namespace": namespace}
    async with producer(**settings, streams=2) as running:
        await running.until_ready()

    async with producer(**settings, streams=3, workers=workers) as running:
        _, errors = await asyncio.wait_for(running.process.communicate(), 60)

    assert running.process.returncode == 1
    assert b"producer: 3 streams are asked for (BATON_STREAMS), but the stream table has 2" in errors
    assert b"restarting" not in errors


@pytest.mark.parametrize("workers", [1, 2])
async def test_metrics_have_a_port_of_their_own(namespace: str, workers: int) -> None:
    """Every worker listens on both ports; what is private is on one of them only. It needs no servers."""
    private = free_port()
    away = {"kafka": "127.0.0.1:1", "zookeeper": "127.0.0.1:1", "namespace": namespace}
    async with producer(**away, workers=workers, private_port=private) as running:
        await running.until_ready(503)
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{private}", timeout=30) as operator:

            async def all_counted() -> bool:
                metrics = (await operator.get("/metrics", headers=ALONE)).text
                return workers == 1 or "baton_workers 2.0" in metrics

            await until(all_counted)
            for path in ("/metrics", "/status", "/docs", "/try"):
                for _ in range(4):
                    assert (await operator.get(path, headers=ALONE)).status_code == 200
                    assert (await running.client.get(path, headers=ALONE)).status_code == 404
        assert (await running.client.get("/livez")).status_code == 200
        running.process.send_signal(signal.SIGTERM)
        code = await asyncio.wait_for(running.process.wait(), 30)

    assert code == 0
