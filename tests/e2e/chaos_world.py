"""The rig of a chaos run: a fleet on its own servers, with a proxy in each of its connections.

The broker has one listener per service, advertised at that service's proxy, and a direct one for the judge.
Every process dies with the test.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from shared.model.group import GroupSettings
from shared.model.names import Names
from shared.zookeeper.connection import ZooKeeper
from tests.e2e.crashing_consumer import SMALL
from tests.e2e.fleet import PARTITIONS, SETTINGS, Fleet
from tests.e2e.proxy import Proxy
from tests.e2e.readers import Where
from tests.e2e.service import CHECKOUT
from tests.servers import KafkaServer, Server, ZooKeeperServer, free_port

STREAMS = 6
MOST_CONSUMERS = 5
NAMES = ("producer", "control", *(f"consumer-{index}" for index in range(MOST_CONSUMERS)))


@dataclass(frozen=True, slots=True)
class Links:
    """One service's connections: to Kafka, to ZooKeeper, and from others to its HTTP port."""

    kafka: Proxy
    zookeeper: Proxy
    http: Proxy

    @property
    def all(self) -> tuple[Proxy, Proxy, Proxy]:
        return self.kafka, self.zookeeper, self.http


class ProxiedKafka(KafkaServer):
    """A broker with a listener per name in `advertised`, whose address it advertises to clients there."""

    def __init__(self, home: Path, ports: Mapping[str, int]) -> None:
        super().__init__(home)
        self._ports = ports
        self.advertised: dict[str, str] = {}

    def prepare(self) -> None:
        """The usual configuration with other listeners: of two lines Java takes the last."""
        super().prepare()
        controller = f"CONTROLLER://127.0.0.1:{self.options.controller_port}"
        own = {name.upper().replace("-", ""): name for name in self._ports}
        shared = [f"PLAINTEXT://{self.address}", controller]
        at = [f"{label}://127.0.0.1:{self._ports[name]}" for label, name in own.items()]
        advertised = [f"{label}://{self.advertised[name]}" for label, name in own.items()]
        kinds = [f"{label}:PLAINTEXT" for label in ("CONTROLLER", "PLAINTEXT", *own)]
        with self.options.config.open("a") as config:
            config.write(
                f"listeners={','.join(shared + at)}\nadvertised.listeners={','.join(shared + advertised)}\n"
                f"listener.security.protocol.map={','.join(kinds)}\n"
                "inter.broker.listener.name=PLAINTEXT\nnum.network.threads=1\n"
            )


class World(Fleet):
    """A fleet with its servers and the proxies between them."""

    def __init__(self, home: Path, settings: GroupSettings) -> None:
        for folder in ("kafka", "zookeeper"):
            (home / folder).mkdir()
        listeners = {name: free_port() for name in NAMES}
        self.kafka = ProxiedKafka(home / "kafka", listeners)
        self.zookeeper = ZooKeeperServer(home / "zookeeper")
        where = Where(self.kafka.address, Names(), STREAMS, PARTITIONS)
        super().__init__(where, self.zookeeper.address, home, settings)
        self.environment[SMALL] = "1"
        self.links = {
            name: Links(
                Proxy(f"127.0.0.1:{listeners[name]}", "kafka"),
                Proxy(self.zookeeper.address, "zookeeper"),
                Proxy(f"127.0.0.1:{self.port_of(name)}", "http"),
            )
            for name in NAMES
        }

    @property
    def servers(self) -> dict[str, Server]:
        """Kafka and ZooKeeper."""
        return {"kafka": self.kafka, "zookeeper": self.zookeeper}

    @property
    def proxies(self) -> list[Proxy]:
        """All proxies."""
        return [proxy for links in self.links.values() for proxy in links.all]

    @property
    def producer_url(self) -> str:
        """Where to post fragments."""
        return f"http://{self.links['producer'].http.address}"

    @property
    def control_url(self) -> str:
        """Where to request operations."""
        return f"http://{self.links['control'].http.address}"

    def logged(self, message: str, since: Mapping[str, int]) -> list[dict[str, Any]]:
        """The lines with this message in the logs of all services since `log_ends`."""
        return [
            line for name, one in self.services.items() for line in one.logged(message, since.get(name, 0))
        ]

    @property
    def log_ends(self) -> dict[str, int]:
        """Where each service's log ends now."""
        return {name: service.log_end for name, service in self.services.items()}

    async def rows(self) -> dict[int, dict[str, Any]]:
        """The rows of `GET /streams` by stream; none while control does not answer."""
        with contextlib.suppress(httpx.TransportError):
            async with httpx.AsyncClient(base_url=self.control_url) as control:
                answer = await control.get("/streams")
            if answer.status_code == 200:
                return {row["stream"]: row for row in answer.json()["streams"]}
        return {}

    def links_of(self, index: int) -> Links:
        """The connections of a consumer."""
        return self.links[f"consumer-{index}"]

    def _ways(self, name: str) -> dict[str, str]:
        links = self.links[name]
        return {
            "BATON_KAFKA": links.kafka.address,
            "BATON_ZOOKEEPER": links.zookeeper.address,
            "BATON_ADVERTISE": f"http://{links.http.address}",
        }

    async def heal(self) -> None:
        """Repairs every server and proxy; stopped processes continue."""
        for proxy in self.proxies:
            proxy.heal()
        for server in self.servers.values():
            server.resume()
            await asyncio.to_thread(server.start)
        for service in self.services.values():
            if service.is_running:
                service.signal(signal.SIGCONT)

    def end(self) -> None:
        """Kills every process, servers too, and removes the servers' data."""
        super().end()
        for server in self.servers.values():
            server.kill()
            shutil.rmtree(server.home, ignore_errors=True)


@contextlib.asynccontextmanager
async def chaos_world(home: Path, consumers: int, checkout: Path = CHECKOUT) -> AsyncIterator[World]:
    """A world in which everything runs, by the code of `checkout`; nothing of it outlives the block."""
    world = World(home, SETTINGS)
    world.checkout = checkout
    async with contextlib.AsyncExitStack() as stack:
        for proxy in world.proxies:
            await stack.enter_async_context(proxy.running())
        world.kafka.advertised = {name: links.kafka.address for name, links in world.links.items()}
        stack.callback(world.end)
        await asyncio.gather(asyncio.to_thread(world.kafka.start), asyncio.to_thread(world.zookeeper.start))
        world.znodes = await stack.enter_async_context(ZooKeeper(world.zookeeper.address, 6.0))
        world.start_producer()
        world.start_control()
        for index in range(consumers):
            world.start_consumer(index)
        await world.ready("producer")
        await world.claimed()
        yield world
