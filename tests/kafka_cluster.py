"""Real brokers that replicate, for tests of what replication, leader changes and lost brokers do.

Every node is a broker and a controller, so any one of three may stop or die. The topics that Kafka itself
needs have a replica on each.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiokafka.protocol.admin import CreateTopicsRequest

from cli.stack.jars.java import find_java
from cli.stack.servers.servers import LOOPBACK, kafka_config, kafka_format_argv, new_cluster_id
from shared.errors import KafkaUnavailable
from shared.kafka.connect.cluster import Cluster
from shared.kafka.wire.metadata import MetadataRequest
from tests.server_groups import ServerGroup
from tests.servers import START_TIMEOUT_S, KafkaServer, free_port, temporary_home
from tests.waiting import until

HEAP_MB = 256
SESSION_TIMEOUT_MS = 2_000
"""So long after a broker was killed, others lead its partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """How often a partition got another leader, and how many of its replicas are not in step."""

    epoch: int
    lacks: int


class KafkaNode(KafkaServer):
    """One broker, which is a controller as well, of a cluster.

    `ports`: a listener for each name, whose address in `advertised` the broker gives to clients there.
    """

    def __init__(self, home: Path, number: int, cluster: KafkaCluster, ports: Mapping[str, int]) -> None:
        super().__init__(home)
        self.number = number
        self.ports = ports
        self.advertised: dict[str, str] = {}
        self._cluster = cluster

    def prepare(self) -> None:
        self.options.data.mkdir(parents=True, exist_ok=True)
        # of two lines with the same name the last one counts
        settings = "".join(f"{name}={value}\n" for name, value in self._settings().items())
        self.options.config.write_text(kafka_config(self.options) + settings)
        if not self.options.is_formatted:
            argv = kafka_format_argv(self.options, find_java(), self._class_path, self._cluster.id)
            argv.remove("--standalone")
            subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, timeout=START_TIMEOUT_S)

    def argv(self) -> list[str]:
        # less memory and a faster start, at the price of speed that these tests do not need
        slow = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Xmx{HEAP_MB}m"]
        java, *rest = (one for one in super().argv() if not one.startswith(("-Xm", "-XX:+UseG1GC")))
        return [java, *slow, *rest]

    def _settings(self) -> dict[str, object]:
        nodes = self._cluster.nodes.values()
        shared = [f"PLAINTEXT://{self.address}", f"CONTROLLER://{_controller(self)}"]
        own = {name: name.upper().replace("-", "") for name in self.ports}
        at = [f"{own[name]}://{LOOPBACK}:{port}" for name, port in self.ports.items()]
        advertised = [f"{own[name]}://{address}" for name, address in self.advertised.items()]
        kinds = [f"{label}:PLAINTEXT" for label in ("CONTROLLER", "PLAINTEXT", *own.values())]
        return {
            "node.id": self.number,
            "controller.quorum.voters": ",".join(f"{node.number}@{_controller(node)}" for node in nodes),
            "controller.quorum.bootstrap.servers": ",".join(map(_controller, nodes)),
            "listeners": ",".join(shared + at),
            "advertised.listeners": ",".join(shared + advertised),
            "listener.security.protocol.map": ",".join(kinds),
            "inter.broker.listener.name": "PLAINTEXT",
            # each listener has threads of its own
            **({"num.network.threads": 1} if own else {}),
            "offsets.topic.replication.factor": len(nodes),
            "transaction.state.log.replication.factor": len(nodes),
            "broker.heartbeat.interval.ms": SESSION_TIMEOUT_MS // 5,
            "broker.session.timeout.ms": SESSION_TIMEOUT_MS,
            **self._cluster.settings,
        }


def _controller(node: KafkaNode) -> str:
    return f"{LOOPBACK}:{node.options.controller_port}"


class KafkaCluster(ServerGroup[KafkaNode]):
    """`count` nodes in folders of `home`. `names`: each node has a listener for each of these."""

    def __init__(self, home: Path, count: int = 3, names: Iterable[str] = (), **settings: object) -> None:
        self.id = new_cluster_id()
        self.settings = {name.replace("_", "."): value for name, value in settings.items()}
        for number in range(1, count + 1):
            (home / str(number)).mkdir()
        super().__init__(
            {
                n: KafkaNode(home / str(n), n, self, {name: free_port() for name in names})
                for n in range(1, count + 1)
            }
        )

    async def is_whole(self) -> bool:
        """Whether all brokers are there, and all replicas of all topics are in step."""
        brokers, partitions = await self._metadata()
        return brokers == len(self.nodes) and not any(one.lacks for one in partitions)

    async def shrunk(self) -> str:
        """How many partitions lack a replica."""
        _, partitions = await self._metadata()
        return f"{sum(one.lacks > 0 for one in partitions)} of {len(partitions)} partitions lack a replica"

    async def leader_changes(self) -> int:
        """How often any partition got a leader, after its first one."""
        return sum(one.epoch for one in (await self._metadata())[1])

    async def _metadata(self) -> tuple[int, list[PartitionState]]:
        """The number of brokers, and all partitions; none if Kafka does not answer."""
        async with Cluster(self.address) as cluster:
            try:
                answer = await cluster.ask_any(MetadataRequest(None))
            except KafkaUnavailable:
                return 0, []
        rows = [row for _, _, _, _, partitions, *_ in answer.topics for row in partitions]
        found = [
            PartitionState(epoch=epoch, lacks=len(replicas) - len(in_sync))
            for _, _, _, epoch, replicas, in_sync, *_ in rows
        ]
        return len(answer.brokers), found

    async def create(
        self, topics: Mapping[str, Sequence[Sequence[int]]], configs: Mapping[str, str] | None = None
    ) -> None:
        """Creates topics with these replicas for each partition; the first one leads."""
        rows: list[Any] = [
            (name, -1, -1, [*enumerate(map(list, partitions))], [*(configs or {}).items()])
            for name, partitions in topics.items()
        ]
        async with Cluster(self.address) as cluster:
            answer = await cluster.ask_controller(CreateTopicsRequest(rows, 10_000, False), START_TIMEOUT_S)
        assert not any(code for _, code, *_ in answer.topic_errors), answer.topic_errors
        await until(self.is_whole, within_s=START_TIMEOUT_S)


@contextlib.contextmanager
def kafka_cluster(count: int = 3) -> Iterator[KafkaCluster]:
    """Brokers that run."""
    with temporary_home("kafka3") as home:
        cluster = KafkaCluster(home, count)
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.kill()
