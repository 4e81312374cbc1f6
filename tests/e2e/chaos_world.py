"""The world of a chaos run: servers of its own, a producer and consumers, and a proxy in each of their ways.

The broker has a listener for each service, advertised at the proxy of that service, and one of its own for
whoever judges. Every process dies with the test, and is ended by it before.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import msgspec

from shared.errors import Unavailable
from shared.model.cluster import ClaimNode
from shared.model.group import GroupSettings
from shared.model.names import Names
from shared.zookeeper.connection import ZooKeeper
from tests.e2e.chaos_parts import Links, ProxiedKafka, Service, steady_ports
from tests.e2e.fleet import poll
from tests.e2e.proxy import Proxy
from tests.e2e.readers import Where
from tests.servers import ZooKeeperServer

STREAMS = 6
PARTITIONS = 2
MOST_CONSUMERS = 5
ZOOKEEPER_TIMEOUT_S = 2.0
ACK_TIMEOUT_S = 3.0


class World:
    """Servers, services, and the ways between them; consumers are started and stopped by their index."""

    def __init__(self, home: Path, settings: GroupSettings) -> None:
        self.home = home
        self.settings = settings
        names = ["producer", "control", *(f"consumer-{index}" for index in range(MOST_CONSUMERS))]
        kafka_port, zookeeper_port, *ports = steady_ports(2 + 2 * len(names))
        self._http_ports = dict(zip(names, ports[::2], strict=True))
        kafka_ports = dict(zip(names, ports[1::2], strict=True))
        (home / "kafka").mkdir()
        (home / "zookeeper").mkdir()
        self.kafka = ProxiedKafka(home / "kafka", kafka_port, kafka_ports)
        self.zookeeper = ZooKeeperServer(home / "zookeeper", zookeeper_port)
        self.links = {
            name: Links(
                Proxy(f"127.0.0.1:{kafka_ports[name]}", "kafka"),
                Proxy(self.zookeeper.address, "zookeeper"),
                Proxy(f"127.0.0.1:{self._http_ports[name]}", "http"),
            )
            for name in names
        }
        self.services: dict[str, Service] = {}
        self.where = Where(self.kafka.address, Names(), STREAMS, PARTITIONS)
        self.znodes: ZooKeeper
        self.http: httpx.AsyncClient

    @property
    def consumers(self) -> list[int]:
        """The indexes of those whose processes live."""
        found = [index for index in range(MOST_CONSUMERS) if f"consumer-{index}" in self.services]
        return [index for index in found if self.consumer(index).is_running]

    @property
    def proxies(self) -> list[Proxy]:
        """All of them."""
        return [proxy for links in self.links.values() for proxy in links.all]

    @property
    def producer_url(self) -> str:
        """Where fragments are posted to."""
        return f"http://{self.links['producer'].http.address}"

    @property
    def control_url(self) -> str:
        """Where operations are asked for."""
        return f"http://{self.links['control'].http.address}"

    def consumer(self, index: int) -> Service:
        """The process of a consumer."""
        return self.services[f"consumer-{index}"]

    def links_of(self, index: int) -> Links:
        """The ways of a consumer."""
        return self.links[f"consumer-{index}"]

    def start_consumer(self, index: int) -> None:
        """Starts consumer `index`, for the first time or again."""
        self._service(f"consumer-{index}", "consumer", BATON_MEMBER=f"consumer-{index}").start()

    def start_producer(self) -> None:
        """Starts the producer, for the first time or again."""
        self._service("producer", "producer", BATON_PRODUCER="producer").start()

    def start_control(self) -> None:
        """Starts control, through which a consumer may be asked to drain."""
        folders = {"BATON_RUNS": str(self.home / "runs"), "BATON_LAKE": str(self.home / "lake")}
        self._service("control", "control", BATON_REFRESH_S="1", **folders).start()

    def _service(self, name: str, module: str, **own: str) -> Service:
        if name not in self.services:
            links = self.links[name]
            fixed = {field: getattr(self.settings, field) for field in self.settings.__struct_fields__}
            environment = {f"BATON_{field.upper()}": str(value) for field, value in fixed.items()} | {
                "BATON_KAFKA": links.kafka.address,
                "BATON_ZOOKEEPER": links.zookeeper.address,
                "BATON_ADVERTISE": f"http://{links.http.address}",
                "BATON_PORT": str(self._http_ports[name]),
                "BATON_STREAMS": str(STREAMS),
                "BATON_SESSION_PARTITIONS": str(PARTITIONS),
                "BATON_ZOOKEEPER_TIMEOUT_S": str(ZOOKEEPER_TIMEOUT_S),
                "BATON_ACK_TIMEOUT_S": str(ACK_TIMEOUT_S),
                "BATON_SETTLE_S": "1",
                "BATON_GRACE_S": "1",
                "BATON_REST_S": "1",
                "BATON_COMMIT_S": "0.3",
                "BATON_MAX_REPLAY_FRAGMENTS": "400",
                # by which a process that was left behind would be found
                "TMPDIR": str(self.home),
            }
            log = self.home / f"{name}.log"
            self.services[name] = Service(f"services.{module}", log, environment | own)
        return self.services[name]

    async def claims(self) -> dict[int, int]:
        """Stream → index of the consumer that has claimed it. Raises Unavailable."""
        names, group, found = self.where.names, self.where.group, {}
        for child in await self.znodes.children(names.claims(group)):
            znode = await self.znodes.get(names.claim(group, int(child)))
            if znode is not None:
                member = msgspec.json.decode(znode.data, type=ClaimNode).member
                found[int(child)] = int(member.removeprefix("consumer-"))
        return found

    async def claimed(self, without: int | None = None, by: int | None = None) -> dict[int, int]:
        """The claims, once every stream has one; none of consumer `without`, and some of consumer `by`."""
        found: dict[int, int] = {}

        async def is_so() -> bool:
            nonlocal found
            with contextlib.suppress(Unavailable):
                found = await self.claims()
                owners = found.values()
                return len(found) == STREAMS and without not in owners and (by is None or by in owners)
            return False

        await poll(is_so, lambda: f"claims {found}, without {without}, by {by}:\n{self.told()}")
        return found

    async def positions(self) -> dict[int, int]:
        """Stream → committed position. Raises KafkaUnavailable."""
        return {stream: head.position for stream, head in (await self.where.heads()).items()}

    async def ready(self, name: str) -> None:
        """Returns when the service takes part."""
        url = f"http://127.0.0.1:{self._http_ports[name]}/readyz"

        async def is_so() -> bool:
            with contextlib.suppress(httpx.TransportError):
                return (await self.http.get(url)).status_code == 200
            return False

        await poll(is_so, lambda: f"{name} is not ready:\n{self.told()}")

    async def heal(self) -> None:
        """Every server and proxy as if nothing had been; processes that stand still go on."""
        for proxy in self.proxies:
            proxy.heal()
        for server in (self.kafka, self.zookeeper):
            server.resume()
            await asyncio.to_thread(server.start)
        for service in self.services.values():
            if service.is_running:
                service.signal(signal.SIGCONT)

    async def leave(self) -> dict[int, int]:
        """Ends all consumers in order; index → exit code."""
        leaving = self.consumers
        await asyncio.gather(*[self.ready(f"consumer-{index}") for index in leaving])
        for index in leaving:
            self.consumer(index).signal(signal.SIGTERM)
        return {index: await self.consumer(index).ended() for index in leaving}

    def told(self) -> str:
        """The last words of everybody."""
        return "\n".join(f"{name}:\n{service.told()}" for name, service in self.services.items())

    def end(self) -> None:
        """Ends every process that this one has started, however it stands, and removes the servers' data."""
        for service in self.services.values():
            service.end()
        for server in (self.kafka, self.zookeeper):
            server.kill()
            shutil.rmtree(server.home, ignore_errors=True)


@contextlib.asynccontextmanager
async def chaos_world(home: Path, settings: GroupSettings, consumers: int) -> AsyncIterator[World]:
    """A world in which everything runs; nothing of it is left after the block."""
    world = World(home, settings)
    async with contextlib.AsyncExitStack() as stack:
        for proxy in world.proxies:
            await stack.enter_async_context(proxy.running())
        world.kafka.advertised = {name: links.kafka.address for name, links in world.links.items()}
        stack.callback(world.end)
        await asyncio.gather(asyncio.to_thread(world.kafka.start), asyncio.to_thread(world.zookeeper.start))
        world.znodes = await stack.enter_async_context(ZooKeeper(world.zookeeper.address, 6.0))
        world.http = await stack.enter_async_context(httpx.AsyncClient())
        world.start_producer()
        world.start_control()
        for index in range(consumers):
            world.start_consumer(index)
        await world.ready("producer")
        await world.claimed()
        yield world
