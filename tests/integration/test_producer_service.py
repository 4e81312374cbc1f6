"""The producer as a process: it survives its servers, rejects clearly, and stops in order."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import httpx
from aiokafka import AIOKafkaConsumer, TopicPartition

from shared.model.names import Names
from shared.model.routing import initial_table
from shared.zookeeper.connection import ZooKeeper
from tests.integration.test_producer_sink import limit_batches
from tests.servers import KafkaServer, free_port
from tests.topics import admin_client
from tests.waiting import until

JSON = {"content-type": "application/json"}
MIB = 1024 * 1024
ALONE = {"connection": "close"}
"""A request with this header has its own connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A producer process and a client of it."""

    process: asyncio.subprocess.Process
    client: httpx.AsyncClient

    async def until_ready(self, status: int = 200) -> httpx.Response:
        """The answer of /readyz as soon as it has the status."""

        async def answered() -> httpx.Response | None:
            assert self.process.returncode is None, "the producer has ended"
            with contextlib.suppress(httpx.TransportError):
                answer = await self.client.get("/readyz")
                return answer if answer.status_code == status else None
            return None

        found = await until(answered)
        assert found is not None
        return found

    def peak_bytes(self) -> int:
        """The peak of its memory."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        assert found
        return int(found[1]) * 1024


@contextlib.asynccontextmanager
async def producer(**settings: object) -> AsyncIterator[Running]:
    """A producer process with these settings (`namespace="x"` → BATON_NAMESPACE)."""
    port = free_port()
    environment = {f"BATON_{name.upper()}": str(value) for name, value in settings.items()}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "services.producer",
        env=os.environ | environment | {"BATON_PORT": str(port)},
        stderr=asyncio.subprocess.PIPE,
        limit=16 * MIB,
    )
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
            yield Running(process=process, client=client)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


async def test_it_starts_before_its_servers(namespace: str) -> None:
    """Without Kafka and ZooKeeper it is alive, says what it waits for, and rejects fragments with a 503."""
    async with producer(kafka="127.0.0.1:1", zookeeper="127.0.0.1:1", namespace=namespace) as running:
        not_ready = await running.until_ready(503)
        alive = await running.client.get("/livez")
        refused = await running.client.post("/fragments", content=b'{"key":"a"}', headers=JSON)

    assert "no stream table yet" in not_ready.json()["detail"]
    assert alive.status_code == 200
    assert refused.status_code == 503
    assert refused.headers["retry-after"] == "1"


async def test_it_accepts_fragments_registers_and_stops_in_order(
    kafka: str, zookeeper: str, namespace: str
) -> None:
    """200 means that Kafka has the bytes; SIGTERM ends it with code 0, and its znode is gone at once."""
    names = Names(namespace)
    settings = {"kafka": kafka, "zookeeper": zookeeper, "namespace": namespace, "streams": 3}
    body = b'{"key":"visitor-1","data":[1, 2]}'
    async with ZooKeeper(zookeeper, 4.0) as znodes:
        async with producer(**settings, producer="p1") as running:
            await running.until_ready()
            answer = await running.client.post("/fragments", content=body, headers=JSON)
            marker = await running.client.post("/markers", json={"time": 5})
            table = await running.client.get("/table")
            entry = await znodes.get(names.producer("p1"))
            running.process.send_signal(signal.SIGTERM)
            code = await asyncio.wait_for(running.process.wait(), 30)
            left = await znodes.get(names.producer("p1"))
        stored = await znodes.get(names.table)

    async with AIOKafkaConsumer(bootstrap_servers=kafka, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(names.fragments(1), 0)])
        first, second = await consumer.getone(), await consumer.getone()
    assert answer.json() == {"accepted": 1, "rejected": []}
    assert (first.key, first.value, first.timestamp_type) == (b"visitor-1", body, 1)
    assert (second.key, second.value) == (None, b'{"time":5}')
    assert {"stream": 1, "offset": 1} in marker.json()["markers"]
    assert stored is not None
    assert table.content == stored.data
    assert entry is not None
    assert (code, left) == (0, None)


async def test_requests_in_flight_are_finished_before_the_end(
    kafka_server: KafkaServer, zookeeper: str, namespace: str
) -> None:
    """After SIGTERM, requests that wait for Kafka get their answers; new connections fail."""
    settings = {"kafka": kafka_server.address, "zookeeper": zookeeper, "namespace": namespace, "streams": 1}
    body = b'{"key":"a"}'
    async with producer(**settings) as running:
        await running.until_ready()
        kafka_server.pause()
        post = functools.partial(running.client.post, "/fragments", content=body, headers=JSON | ALONE)
        waiting = asyncio.gather(*(post() for _ in range(8)))

        async def all_wait() -> bool:
            metrics = (await running.client.get("/metrics", headers=ALONE)).text
            return f"baton_inflight_bytes {8 * len(body)}.0" in metrics

        async def is_closed() -> bool:
            try:
                await running.client.get("/livez", headers=ALONE)
            except httpx.TransportError:
                return True
            return False

        await until(all_wait)
        running.process.send_signal(signal.SIGTERM)
        await until(is_closed)
        kafka_server.resume()
        answers = await asyncio.wait_for(waiting, 60)
        await asyncio.wait_for(running.process.communicate(), 60)

    assert [answer.status_code for answer in answers] == [200] * 8
    assert running.process.returncode == 0


async def test_a_start_fault_ends_it_with_a_sentence(kafka: str, zookeeper: str, namespace: str) -> None:
    """Another number of streams than stored: one sentence, and exit code 1."""
    settings = {"kafka": kafka, "zookeeper": zookeeper, "namespace": namespace}
    async with producer(**settings, streams=2) as running:
        await running.until_ready()

    async with producer(**settings, streams=3) as running:
        _, errors = await asyncio.wait_for(running.process.communicate(), 60)

    assert running.process.returncode == 1
    assert b"producer: 3 streams are asked for (BATON_STREAMS), but the stream table has 2" in errors


async def test_metrics_have_a_port_of_their_own(namespace: str) -> None:
    """What is private is on one of the two ports only. It needs no servers."""
    private = free_port()
    away = {"kafka": "127.0.0.1:1", "zookeeper": "127.0.0.1:1", "namespace": namespace}
    async with producer(**away, private_port=private) as running:
        await running.until_ready(503)
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{private}", timeout=30) as operator:
            for path in ("/metrics", "/status", "/docs", "/try"):
                assert (await operator.get(path)).status_code == 200
                assert (await running.client.get(path)).status_code == 404
        assert (await running.client.get("/livez")).status_code == 200


async def test_a_partly_stored_request_lists_what_is_not_stored(
    kafka: str, zookeeper: str, namespace: str
) -> None:
    """If one stream's topic rejects, the other streams store theirs, and /readyz remarks it with a 200."""
    settings = {"kafka": kafka, "zookeeper": zookeeper, "namespace": namespace, "streams": 3}
    keys = [f"visitor-{number}" for number in range(20)]
    body = [{"key": key, "data": number} for number, key in enumerate(keys)]
    hit = [number for number, key in enumerate(keys) if initial_table(3).stream_for(key.encode()) == 1]
    async with producer(**settings) as running:
        await running.until_ready()
        async with admin_client(kafka) as admin:
            await limit_batches(admin, Names(namespace).fragments(1), "50")
        whole = 0
        while (first := await running.client.post("/fragments", json=body)).status_code == 200:
            whole += 1  # the broker may hear of its limit a little later
        second = await running.client.post("/fragments", json=[body[number] for number in hit])
        ready = await running.client.get("/readyz")
        metrics = (await running.client.get("/metrics")).text

    async with AIOKafkaConsumer(bootstrap_servers=kafka, auto_offset_reset="earliest") as consumer:
        partitions = [TopicPartition(Names(namespace).fragments(stream), 0) for stream in range(3)]
        stored = await consumer.end_offsets(partitions)
    assert 0 < len(hit) < len(keys)
    assert (first.status_code, first.headers["retry-after"]) == (503, "1")
    assert (first.json()["unstored"], first.json()["accepted"]) == (hit, len(keys) - len(hit))
    assert second.status_code == 503
    assert "MessageSizeTooLarge" in second.json()["detail"]
    assert ready.status_code == 200
    assert [text.partition(":")[0] for text in ready.json()["remarks"]] == ["stream 1"]
    assert "baton_kafka_batches_lost_total 1" in metrics
    assert stored[partitions[1]] == whole * len(hit)
    assert sum(stored.values()) == whole * len(keys) + len(keys) - len(hit)


async def test_malformed_settings_end_it_with_all_faults(namespace: str) -> None:
    """Exit code 2 and one line per fault."""
    async with producer(streams=0, ack_timeout_s="soon", namespace=namespace) as running:
        _, errors = await asyncio.wait_for(running.process.communicate(), 60)

    assert running.process.returncode == 2
    assert len(errors.decode().strip().splitlines()) == 2


async def test_memory_stays_bounded_while_kafka_stalls(
    kafka_server: KafkaServer, zookeeper: str, namespace: str
) -> None:
    """Hundreds of megabytes while the broker is silent: all get 503 or 429, and memory stays bounded."""
    settings = {"kafka": kafka_server.address, "zookeeper": zookeeper, "namespace": namespace, "streams": 3}
    fragment = b'{"key":"visitor-1","data":"' + b"x" * 30_000 + b'"}'
    body = b"[" + b",".join([fragment] * 33) + b"]"
    async with producer(**settings, ack_timeout_s=2, max_inflight_bytes=16 * MIB) as running:
        await running.until_ready()
        stored = await running.client.post("/fragments", content=body, headers=JSON)
        before = running.peak_bytes()
        kafka_server.pause()

        async def offer() -> set[int]:
            return {
                (await running.client.post("/fragments", content=body, headers=JSON)).status_code
                for _ in range(10)
            }

        statuses = await asyncio.gather(*(offer() for _ in range(40)))
        grown = running.peak_bytes() - before
        kafka_server.resume()
        await running.until_ready()
        again = await running.client.post("/fragments", content=body, headers=JSON)

    assert set().union(*statuses) <= {429, 503}
    assert (stored.status_code, again.status_code) == (200, 200)
    # of 400 requests of 1 MB, 16 MB may be in flight, in up to three copies
    assert grown < 3 * 16 * MIB


async def test_a_rejected_upload_of_any_size_is_answered(kafka: str, zookeeper: str, namespace: str) -> None:
    """A body of 150 MB gets its 413 over a real connection, and the producer does not keep it in memory."""
    async with producer(kafka=kafka, zookeeper=zookeeper, namespace=namespace, streams=1) as running:
        await running.until_ready()
        before = running.peak_bytes()

        async def chunks() -> AsyncIterator[bytes]:
            for _ in range(150):
                yield b" " * MIB

        length = {"content-length": str(150 * MIB)}
        announced = await running.client.post("/fragments", content=chunks(), headers=JSON | length)
        chunked = await running.client.post("/fragments", content=chunks(), headers=JSON)
        grown = running.peak_bytes() - before

    assert (announced.status_code, chunked.status_code) == (413, 413)
    assert grown < 10 * MIB
