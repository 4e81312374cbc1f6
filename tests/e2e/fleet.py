"""The end-to-end rig: producer, control and consumers as processes over one Kafka and one ZooKeeper.

A test starts, kills, pauses and restarts them by name or index. `Fleet` also creates topics and stream table,
writes a log of visits without HTTP, and waits for claims and commits. A chaos run adds its own servers and a
proxy in every connection (`chaos_world.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
from collections.abc import AsyncIterator, Awaitable, Mapping
from pathlib import Path

import httpx
import msgspec
from aiokafka import AIOKafkaProducer

from cli.stack.jars.lock import jar_folder
from shared.errors import BatonError, KafkaUnavailable, Unavailable
from shared.model.cluster import ClaimNode
from shared.model.fragments import encode_marker
from shared.model.group import GroupSettings
from shared.model.names import Names
from shared.zookeeper.connection import ZooKeeper
from shared.zookeeper.stream_table import ensure_table
from tests.e2e.crashing_consumer import CRASH
from tests.e2e.readers import Where
from tests.e2e.service import CHECKOUT, Service
from tests.e2e.visits import Visits
from tests.servers import free_port
from tests.waiting import until

PARTITIONS = 2
PACE_S = 0.05
END_OF_TIME_MS = 9_000_000_000_000
ZOOKEEPER_TIMEOUT_S = 2.0
ACK_TIMEOUT_S = 3.0
SETTINGS = GroupSettings(
    gap_ms=60_000,
    lateness_ms=10_000,
    idle_ms=3_600_000,
    repeat_ms=3_600_000,
    max_session_fragments=40,
)
"""No session ends by this machine's clock, and no id is forgotten during a run."""
QUICK = {
    "BATON_ZOOKEEPER_TIMEOUT_S": str(ZOOKEEPER_TIMEOUT_S),
    "BATON_COMMIT_S": "0.3",
    "BATON_REFRESH_S": "0.2",
}
"""Others take over a dead member's streams within seconds."""
MODULES = {
    "consumer": "tests.e2e.crashing_consumer",
    "producer": "services.producer",
    "control": "services.control",
}


def new_seed() -> int:
    """The seed of this run, printed; `BATON_TEST_SEED` sets it."""
    seed = int(os.environ.get("BATON_TEST_SEED", random.SystemRandom().randrange(1_000_000)))
    print(f"BATON_TEST_SEED={seed}")
    return seed


def _environment(settings: Mapping[str, object]) -> dict[str, str]:
    """`ack_timeout_s=1` as BATON_ACK_TIMEOUT_S."""
    return {f"BATON_{name.upper()}": str(value) for name, value in settings.items()}


class Fleet:
    """The services by name: `producer`, `control`, `consumer-0`, `consumer-1`, …"""

    def __init__(self, where: Where, zookeeper: str, home: Path, settings: GroupSettings) -> None:
        self.where = where
        self.home = home
        self.services: dict[str, Service] = {}
        self.znodes: ZooKeeper
        self.checkout = CHECKOUT
        """Whose code services that are started from now on run."""
        self._ports: dict[str, int] = {}
        fixed = {name: getattr(settings, name) for name in settings.__struct_fields__}
        self.environment = {f"BATON_{name.upper()}": str(value) for name, value in fixed.items()} | {
            **QUICK,
            "BATON_KAFKA": where.kafka,
            "BATON_ZOOKEEPER": zookeeper,
            "BATON_NAMESPACE": where.names.namespace,
            "BATON_STREAMS": str(where.streams),
            "BATON_SESSION_PARTITIONS": str(where.partitions),
            "BATON_ACK_TIMEOUT_S": str(ACK_TIMEOUT_S),
            "BATON_SETTLE_S": "1",
            "BATON_GRACE_S": "2",
            "BATON_REST_S": "1",
            "BATON_MAX_REPLAY_FRAGMENTS": "400",
            "TMPDIR": str(home),  # `left_running` finds a leftover process by it
        }

    # processes

    @property
    def consumers(self) -> list[int]:
        """The indexes of the consumers whose processes exist."""
        return [
            int(name.removeprefix("consumer-"))
            for name, service in sorted(self.services.items())
            if name.startswith("consumer-") and service.is_running
        ]

    def consumer(self, index: int) -> Service:
        """The process of a consumer."""
        return self.services[f"consumer-{index}"]

    def start_consumer(self, index: int, crash: str | None = None, **settings: object) -> Service:
        """Starts consumer `index` for the first time or again, this once with these settings.

        `crash`: see `crashing_consumer.py`.
        """
        service = self._service("consumer", f"consumer-{index}", BATON_MEMBER=f"consumer-{index}")
        planted = {} if crash is None else {CRASH: crash}
        service.start(**planted, **_environment(settings))
        return service

    def start_producer(self, **settings: object) -> Service:
        """Starts the producer with these settings: `ack_timeout_s=1` sets BATON_ACK_TIMEOUT_S."""
        service = self._service("producer", "producer", BATON_PRODUCER="producer", **_environment(settings))
        service.start()
        return service

    def start_control(self) -> Service:
        """Starts control."""
        folders = {
            "BATON_RUNS": str(self.home / "runs"),
            "BATON_LAKE": str(self.home / "lake"),
            "BATON_SPARK_IDLE_S": "0",  # a driver that waits would outlive a control that is killed
            "BATON_JARS": str(jar_folder("spark")),
        }
        service = self._service("control", "control", **folders)
        service.start()
        return service

    def port_of(self, name: str) -> int:
        """The HTTP port of a service, the same after each restart."""
        if name not in self._ports:
            self._ports[name] = free_port()
        return self._ports[name]

    def _service(self, kind: str, name: str, **own: str) -> Service:
        if name not in self.services:
            environment = self.environment | {"BATON_PORT": str(self.port_of(name))} | self._ways(name) | own
            self.services[name] = Service(MODULES[kind], self.home / f"{name}.log", environment)
        self.services[name].checkout = self.checkout
        return self.services[name]

    def _ways(self, name: str) -> dict[str, str]:
        """The environment with which the service `name` finds the servers, and others find it."""
        return {}

    async def ready(self, name: str) -> None:
        """Returns once the service takes part."""
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{self.port_of(name)}") as http:

            async def is_ready() -> bool:
                with contextlib.suppress(httpx.TransportError):
                    return (await http.get("/readyz")).status_code == 200
                return False

            await until(is_ready, lambda: f"{name} is not ready:\n{self.tail()}")

    async def leave(self) -> None:
        """Stops all consumers in order, once they take part; every exit code must be 0."""
        leaving = self.consumers
        await asyncio.gather(*[self.ready(f"consumer-{index}") for index in leaving])
        for index in leaving:
            self.consumer(index).signal(signal.SIGTERM)
        codes = [await self.consumer(index).ended() for index in leaving]
        assert codes == [0] * len(codes), self.tail()

    def end(self) -> None:
        """Kills every process that still runs."""
        for service in self.services.values():
            service.end()

    def tail(self) -> str:
        """The ends of all logs."""
        return "\n".join(f"{name}:\n{service.tail()}" for name, service in self.services.items())

    # claims and commits

    async def claims(self) -> dict[int, int]:
        """Stream → index of the consumer that has claimed it, from readable claims. Raises Unavailable."""
        names, group, found = self.where.names, self.where.group, {}
        for child in await self.znodes.children(names.claims(group)):
            znode = await self.znodes.get(names.claim(group, int(child)))
            if znode is not None:
                with contextlib.suppress(msgspec.DecodeError):
                    member = msgspec.json.decode(znode.data, type=ClaimNode).member
                    found[int(child)] = int(member.removeprefix("consumer-"))
        return found

    async def claimed(self, without: int | None = None, by: int | None = None) -> dict[int, int]:
        """The claims once every stream has one, none is consumer `without`'s and some are consumer `by`'s."""
        found: dict[int, int] = {}

        async def is_claimed() -> bool:
            nonlocal found
            with contextlib.suppress(Unavailable):
                found = await self.claims()
                owners = found.values()
                complete = len(found) == self.where.streams
                return complete and without not in owners and (by is None or by in owners)
            return False

        await until(is_claimed, lambda: f"claims {found}, without {without}, by {by}:\n{self.tail()}")
        return found

    async def claims_of(self, index: int) -> set[int]:
        """The streams that a consumer claims, as soon as ZooKeeper answers."""
        found: set[int] = set()

        async def are_known() -> bool:
            nonlocal found
            with contextlib.suppress(Unavailable):
                found = {stream for stream, owner in (await self.claims()).items() if owner == index}
                return True
            return False

        await until(are_known, lambda: f"no claims are known:\n{self.tail()}")
        return found

    async def positions(self) -> dict[int, int]:
        """Stream → committed position. Raises KafkaUnavailable."""
        return {stream: head.position for stream, head in (await self.where.heads()).items()}

    async def committed(self, ends: Mapping[int, int]) -> None:
        """Returns once every stream is committed beyond its offset in `ends`."""
        left: dict[int, int] = {}

        async def is_committed() -> bool:
            nonlocal left
            with contextlib.suppress(BatonError):
                at = await self.positions()
                left = {stream: end - at.get(stream, -1) for stream, end in ends.items()}
                return max(left.values()) < 0
            return False

        await until(is_committed, lambda: f"not committed: {left}:\n{self.tail()}")

    # a log without HTTP

    async def create_streams(self) -> None:
        """Creates topics and stream table; like a producer it retries while Kafka is away."""

        async def is_created() -> bool:
            with contextlib.suppress(KafkaUnavailable):
                self.table = await ensure_table(
                    self.znodes,
                    self.where.names,
                    kafka=self.where.kafka,
                    streams=self.where.streams,
                    default_streams=1,
                    retention_ms=3_600_000,
                    replication=1,
                )
                return True
            return False

        await until(is_created, lambda: "Kafka creates no topics")

    async def write(self, visits: Visits, count: int) -> None:
        """Appends the next `count` records, acknowledged by all replicas."""
        async with self._producer() as producer:
            await self._append(producer, visits, count)

    async def write_while(self, doing: Awaitable[None], visits: Visits, per_s: int) -> None:
        """Appends records at an even pace until `doing` has ended."""
        done = asyncio.ensure_future(doing)
        async with self._producer() as producer:
            while not done.done():
                await asyncio.gather(
                    self._append(producer, visits, int(per_s * PACE_S)), asyncio.wait((done,), timeout=PACE_S)
                )
        done.result()

    def _producer(self) -> AIOKafkaProducer:
        return AIOKafkaProducer(bootstrap_servers=self.where.kafka, enable_idempotence=True)

    async def _append(self, producer: AIOKafkaProducer, visits: Visits, count: int) -> None:
        sends = []
        for _ in range(count):
            key, value = visits.next()
            topic = self.where.names.fragments(self.table.stream_for(key.encode()))
            sends.append(await producer.send(topic, value=value, key=key.encode(), partition=0))
        await asyncio.gather(*sends)

    async def close_all(self) -> None:
        """Appends the end of time to every stream, and returns once that is committed everywhere."""
        ends, marker = {}, encode_marker(END_OF_TIME_MS)
        async with self._producer() as producer:
            for stream in range(self.where.streams):
                topic = self.where.names.fragments(stream)
                ends[stream] = (await producer.send_and_wait(topic, value=marker, partition=0)).offset
        await self.committed(ends)


@contextlib.asynccontextmanager
async def fleet(
    kafka: str,
    zookeeper: str,
    namespace: str,
    home: Path,
    settings: GroupSettings = SETTINGS,
    *,
    streams: int = 4,
) -> AsyncIterator[Fleet]:
    """A fleet on these servers with streams but no process yet; no process outlives the block."""
    one = Fleet(Where(kafka, Names(namespace), streams, PARTITIONS), zookeeper, home, settings)
    async with ZooKeeper(zookeeper, 6.0) as one.znodes:
        await one.create_streams()
        try:
            yield one
        finally:
            one.end()
