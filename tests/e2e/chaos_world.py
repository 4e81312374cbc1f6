"""The rig of a chaos run: a fleet on its own servers, with a proxy in each of its connections.

One Kafka broker and one ZooKeeper server, or three of each. A broker has one listener per service, advertised
at that service's proxy, and a direct one for the judge. Every process dies with the test.
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
from tests.e2e.proxies import Proxies
from tests.e2e.proxy import Proxy
from tests.e2e.readers import Where
from tests.e2e.service import CHECKOUT
from tests.kafka_cluster import KafkaCluster
from tests.server_groups import ServerGroup
from tests.servers import Server
from tests.zookeeper_ensemble import ZooKeeperEnsemble

STREAMS = 6
MOST_CONSUMERS = 5
NAMES = ("producer", "control", *(f"consumer-{index}" for index in range(MOST_CONSUMERS)))


@dataclass(frozen=True, slots=True)
class Links:
    """One service's connections: to Kafka, to ZooKeeper, and from others to its HTTP port."""

    kafka: Proxies
    zookeeper: Proxies
    http: Proxies

    @property
    def all(self) -> tuple[Proxies, Proxies, Proxies]:
        return self.kafka, self.zookeeper, self.http


class World(Fleet):
    """A fleet with its servers and the proxies between them."""

    def __init__(self, home: Path, settings: GroupSettings, nodes: int) -> None:
        for folder in ("kafka", "zookeeper"):
            (home / folder).mkdir()
        in_step = min(2, nodes)
        self.kafka = KafkaCluster(
            home / "kafka",
            nodes,
            NAMES,
            min_insync_replicas=in_step,
            transaction_state_log_min_isr=in_step,
        )
        self.zookeeper = ZooKeeperEnsemble(home / "zookeeper", nodes)
        self.servers: Mapping[str, ServerGroup[Server]] = {"kafka": self.kafka, "zookeeper": self.zookeeper}
        self.turns = {kind: asyncio.Lock() for kind in self.servers}
        """Whose holder may take one server of that kind away."""
        where = Where(self.kafka.address, Names(), STREAMS, PARTITIONS)
        super().__init__(where, self.zookeeper.address, home, settings)
        # members come and go all the time, which else would earn them waits of up to two minutes
        self.environment |= {SMALL: "1", "BATON_REPLICATION": str(nodes), "BATON_STEADY_S": "0.1"}
        brokers, peers = self.kafka.nodes.values(), self.zookeeper.nodes.values()
        self.links = {
            name: Links(
                Proxies([f"127.0.0.1:{broker.ports[name]}" for broker in brokers], "kafka"),
                Proxies([peer.address for peer in peers], "zookeeper"),
                Proxies([f"127.0.0.1:{self.port_of(name)}"], "http"),
            )
            for name in NAMES
        }

    async def start(self, running: contextlib.AsyncExitStack) -> None:
        """Starts proxies and servers, which run as long as `running`."""
        for proxies in self.proxies:
            await running.enter_async_context(proxies.running())
        for name, links in self.links.items():
            for broker, link in zip(self.kafka.nodes.values(), links.kafka.each, strict=True):
                broker.advertised[name] = link.address
        running.callback(self.end)
        await asyncio.gather(*[asyncio.to_thread(group.start) for group in self.servers.values()])
        self.znodes = await running.enter_async_context(ZooKeeper(self.zookeeper.address, 6.0))

    @property
    def proxies(self) -> list[Proxies]:
        """All proxies."""
        return [proxies for links in self.links.values() for proxies in links.all]

    def links_to(self, kind: str, number: int) -> list[Proxy]:
        """All services' connections to one server of that kind."""
        return [getattr(links, kind).each[number - 1] for links in self.links.values()]

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
        for proxies in self.proxies:
            proxies.heal()
        for group in self.servers.values():
            for server in group.nodes.values():
                server.resume()
            await asyncio.to_thread(group.start)
        for service in self.services.values():
            if service.is_running:
                service.signal(signal.SIGCONT)

    def end(self) -> None:
        """Kills every process, servers too, and removes the servers' data."""
        super().end()
        for kind, group in self.servers.items():
            group.kill()
            shutil.rmtree(self.home / kind, ignore_errors=True)


@contextlib.asynccontextmanager
async def chaos_world(
    home: Path, consumers: int, checkout: Path = CHECKOUT, nodes: int = 1
) -> AsyncIterator[World]:
    """A world in which everything runs, by the code of `checkout`; nothing of it outlives the block.

    `nodes`: brokers, and ZooKeeper servers; with three, topics have three replicas, two of them in step.
    """
    world = World(home, SETTINGS, nodes)
    world.checkout = checkout
    async with contextlib.AsyncExitStack() as stack:
        await world.start(stack)
        world.start_producer()
        world.start_control()
        for index in range(consumers):
            world.start_consumer(index)
        await world.ready("producer")
        await world.claimed()
        yield world
