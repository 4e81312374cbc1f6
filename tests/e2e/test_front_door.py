"""The front door while Kafka stands still under load; chaos runs kill the producer and Kafka."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.door_clients import Clients, tale
from tests.e2e.fleet import fleet
from tests.e2e.readers import ids_of
from tests.servers import KafkaServer
from tests.waiting import until

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """How long Kafka stands still, under how many clients, and what the producer may hold."""

    seconds: float
    clients: int
    batch: int
    max_inflight_bytes: int
    ack_timeout_s: float


SHORT = Outage(seconds=5, clients=40, batch=100, max_inflight_bytes=2 * MIB, ack_timeout_s=1.5)
LONG = Outage(seconds=30, clients=700, batch=100, max_inflight_bytes=64 * MIB, ack_timeout_s=10)
"""The default settings; the clients offer more than may be in flight."""
PATIENCE_S = 5.0
"""Beyond what a request may wait for, for a machine that is busy with other things."""
SPARE_BYTES = 24 * MIB
"""What sockets and the interpreter may take besides."""


def memory(pid: int, name: str) -> int:
    """Resident memory of a process, bytes: `VmRSS` now, `VmHWM` its peak."""
    found = re.search(rf"{name}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) * 1024


@pytest.mark.parametrize(
    "outage",
    [pytest.param(SHORT, id="short"), pytest.param(LONG, id="long", marks=pytest.mark.soak)],
)
async def test_while_kafka_stands_still_fragments_are_refused_at_once_and_memory_is_bounded(
    kafka_server: KafkaServer, zookeeper: str, namespace: str, tmp_path: Path, outage: Outage
) -> None:
    """429 and 503 come soon, memory is bounded, nothing acknowledged is lost, and service resumes."""
    async with fleet(kafka_server.address, zookeeper, namespace, tmp_path) as one:
        producer = one.start_producer(
            max_inflight_bytes=outage.max_inflight_bytes, ack_timeout_s=outage.ack_timeout_s
        )
        await one.ready("producer")
        idle = memory(producer.pid, "VmRSS")
        clients = Clients(one.port_of("producer"), outage.clients, outage.batch)

        async def acknowledged(batches: int) -> None:
            enough = len(clients.acknowledged) + batches * clients.batch
            await until(lambda: len(clients.acknowledged) >= enough, lambda: f"{clients}:\n{one.tail()}")

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(clients.run(), name="clients")
            await acknowledged(3 * outage.clients)
            await asyncio.sleep(outage.seconds / 5)  # at full rate, for comparison
            began_s = time.monotonic()
            kafka_server.pause()
            await asyncio.sleep(outage.seconds)  # how long it lasts
            kafka_server.resume()
            ended_s = time.monotonic()
            grown = memory(producer.pid, "VmHWM") - idle
            await acknowledged(3 * outage.clients)
            await asyncio.sleep(outage.seconds / 5)
            clients.is_over = True
        logs = [await one.where.log(stream) for stream in range(one.where.streams)]

    stored = {id_ for log in logs for id_ in ids_of(record.value for record in log)}
    # what was on its way when Kafka stopped may still have been acknowledged
    refused = [one for one in clients.since(began_s + 0.5, ended_s) if one.status != 200]
    print(f"memory {grown / MIB:+.0f} MiB; {tale(clients, began_s, ended_s)}")
    assert {one.status for one in refused} == {429, 503}
    assert max(one.took_s for one in refused) < outage.ack_timeout_s + 2 * PATIENCE_S
    assert all(one.took_s < PATIENCE_S for one in refused if one.status == 429)
    assert grown < 3 * outage.max_inflight_bytes + SPARE_BYTES
    assert clients.acknowledged - stored == set()
