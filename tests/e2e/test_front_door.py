"""The front door while itself or Kafka dies or stands still under load: a 200 is never a lie."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from shared.model.group import GroupSettings
from shared.model.names import Names
from tests.e2e.chaos_judge import judge_ledger
from tests.e2e.chaos_load import Load
from tests.e2e.chaos_parts import Service, steady_ports
from tests.e2e.door_clients import Clients, tale
from tests.e2e.fleet import fleet, poll
from tests.e2e.readers import Where, ids_of
from tests.e2e.test_exactly_once import new_seed
from tests.servers import KafkaServer

MIB = 1024 * 1024
STREAMS = 4
SETTINGS = GroupSettings(
    gap_ms=60_000,
    lateness_ms=10_000,
    idle_ms=3_600_000,
    repeat_ms=3_600_000,
    max_session_fragments=40,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Producer:
    """A producer process at a port that stays its own, however often it dies."""

    service: Service
    port: int

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.port}"

    async def ready(self) -> None:
        """Returns when it can take fragments."""
        async with httpx.AsyncClient() as http:

            async def is_so() -> bool:
                with contextlib.suppress(httpx.TransportError):
                    return (await http.get(f"{self.url}/readyz")).status_code == 200
                return False

            await poll(is_so, lambda: f"the producer is not ready:\n{self.service.told()}")

    def memory(self, name: str = "VmRSS") -> int:
        """Its resident memory, bytes; VmHWM: the most that it ever was."""
        status = Path(f"/proc/{self.service.pid}/status").read_text()
        found = re.search(rf"{name}:\s+(\d+) kB", status)
        assert found
        return int(found[1]) * 1024


@contextlib.asynccontextmanager
async def producer(home: Path, **settings: object) -> AsyncIterator[Producer]:
    """A running producer with these settings (`namespace="x"` → BATON_NAMESPACE); it is ended afterwards."""
    (port,) = steady_ports(1)
    environment = {f"BATON_{name.upper()}": str(value) for name, value in (settings | {"port": port}).items()}
    one = Producer(service=Service("services.producer", home / "producer.log", environment), port=port)
    one.service.start()
    try:
        await one.ready()
        yield one
    finally:
        one.service.end()


async def kill_in_turns(
    one: Producer, kafka: KafkaServer, load: Load, rounds: int, told: Callable[[], str]
) -> None:
    """Producer and Kafka die by SIGKILL with requests in flight, and come back; fragments flow between."""
    ledger = load.ledger

    async def flowing(more: int = 200) -> None:
        before = ledger.acknowledged

        async def is_so() -> bool:
            return ledger.acknowledged >= before + more and ledger.in_flight > 0

        await poll(is_so, lambda: f"nothing is acknowledged: {load}\n{told()}")

    for _ in range(rounds):
        await flowing()
        one.service.signal(signal.SIGKILL)
        await one.service.ended()
        one.service.start()
        await flowing()
        kafka.kill()
        await asyncio.to_thread(kafka.start)
    await flowing()


@pytest.mark.parametrize(
    ("rounds", "fragments"),
    [(2, 6_000), pytest.param(15, 100_000, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])],
)
async def test_what_got_a_200_is_in_exactly_one_session_whoever_was_killed(
    kafka_server: KafkaServer, zookeeper: str, namespace: str, tmp_path: Path, rounds: int, fragments: int
) -> None:
    """Producer and Kafka killed under load, clients that try again by id: nothing is lost or doubled."""
    async with fleet(
        kafka_server.address, zookeeper, namespace, tmp_path, SETTINGS, streams=STREAMS
    ) as consumers:
        settings = {"kafka": kafka_server.address, "zookeeper": zookeeper, "namespace": namespace}
        async with producer(tmp_path, **settings, ack_timeout_s=3, zookeeper_timeout_s=2) as one:
            consumers.start(0)
            consumers.start(1)
            load = Load(one.url, new_seed(), 600)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(load.run(), name="load")
                await kill_in_turns(one, kafka_server, load, rounds, one.service.told)
                load.finish(fragments, 4_000)
            await consumers.close_all()
            await consumers.stop()

    print(load)
    assert load.ledger.acknowledged >= fragments * 0.9
    assert judge_ledger(load.ledger, await consumers.where.delivered()) == []


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
"""The settings as they are by default; what the clients offer is more than may be in flight."""
PATIENCE_S = 5.0
"""Beyond what a request may wait for, for a machine that does other things as well."""
SPARE_BYTES = 24 * MIB
"""What sockets and the interpreter may take besides."""


async def acknowledged(clients: Clients, more: int, told: Callable[[], str]) -> None:
    """Returns when so many more batches were acknowledged."""
    wanted = len(clients.acknowledged) + more * clients.batch

    async def is_so() -> bool:
        return len(clients.acknowledged) >= wanted

    await poll(is_so, lambda: f"{clients} of {wanted}:\n{told()}")


@pytest.mark.parametrize(
    "outage",
    [pytest.param(SHORT, id="short"), pytest.param(LONG, id="long", marks=pytest.mark.soak)],
)
async def test_while_kafka_stands_still_fragments_are_refused_at_once_and_memory_is_bounded(
    kafka_server: KafkaServer, zookeeper: str, namespace: str, tmp_path: Path, outage: Outage
) -> None:
    """429 and 503, told soon; no more memory than is set; nothing acknowledged is lost; then it goes on."""
    where = Where(kafka_server.address, Names(namespace), STREAMS, 1)
    async with producer(
        tmp_path,
        kafka=kafka_server.address,
        zookeeper=zookeeper,
        namespace=namespace,
        streams=STREAMS,
        max_inflight_bytes=outage.max_inflight_bytes,
        ack_timeout_s=outage.ack_timeout_s,
    ) as one:
        idle = one.memory()
        clients = Clients(one.port, outage.clients, outage.batch)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(clients.run(), name="clients")
            await acknowledged(clients, 3 * outage.clients, one.service.told)
            await asyncio.sleep(outage.seconds / 5)  # at full rate, to be compared with
            began_s = time.monotonic()
            kafka_server.pause()
            await asyncio.sleep(outage.seconds)  # how long it lasts
            kafka_server.resume()
            ended_s = time.monotonic()
            grown = one.memory("VmHWM") - idle
            await acknowledged(clients, 3 * outage.clients, one.service.told)
            await asyncio.sleep(outage.seconds / 5)
            clients.is_over = True
    stored = {id_ for stream in range(STREAMS) for id_ in ids_of(r.value for r in await where.log(stream))}

    # what was on its way when Kafka stopped may have been acknowledged still
    refused = [one for one in clients.since(began_s + 0.5, ended_s) if one.status != 200]
    print(f"memory {grown / MIB:+.0f} MiB; {tale(clients, began_s, ended_s)}")
    assert {one.status for one in refused} == {429, 503}
    assert max(one.took_s for one in refused) < outage.ack_timeout_s + 2 * PATIENCE_S
    assert all(one.took_s < PATIENCE_S for one in refused if one.status == 429)
    assert grown < 3 * outage.max_inflight_bytes + SPARE_BYTES
    assert clients.acknowledged - stored == set()
