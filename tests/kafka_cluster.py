"""Three real brokers for tests of what replication, leader changes and lost brokers do.

Node 1 is the controller as well, so tests stop and kill only nodes 2 and 3. The topics that Kafka itself
needs have three replicas.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from aiokafka.protocol.admin import CreateTopicsRequest

from cli.stack.java import find_java
from cli.stack.servers import LOOPBACK, kafka_config, kafka_format_argv, new_cluster_id
from shared.errors import KafkaUnavailable
from shared.kafka.cluster import Cluster
from shared.kafka.wire.metadata import MetadataRequest
from tests.servers import START_TIMEOUT_S, KafkaServer, temporary_home
from tests.waiting import until

NODES = 3
HEAP_MB = 256
SESSION_TIMEOUT_MS = 2_000
"""So long after a broker was killed, others lead its partitions."""


class KafkaNode(KafkaServer):
    """One broker of a cluster; `controller`: the port of the controller, None if this node is it."""

    def __init__(self, home: Path, number: int, cluster_id: str, controller: int | None) -> None:
        super().__init__(home)
        self.number = number
        self._cluster_id = cluster_id
        self._is_controller = controller is None
        self._controller = self.options.controller_port if controller is None else controller

    def prepare(self) -> None:
        self.options.data.mkdir(parents=True, exist_ok=True)
        # of two lines with the same name the last one counts
        settings = "".join(f"{name}={value}\n" for name, value in self._settings().items())
        self.options.config.write_text(kafka_config(self.options) + settings)
        if not self.options.is_formatted:
            argv = kafka_format_argv(self.options, find_java(), self._class_path, self._cluster_id)
            if not self._is_controller:
                argv.remove("--standalone")
            subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, timeout=START_TIMEOUT_S)

    def argv(self) -> list[str]:
        # less memory and a faster start, at the price of speed that these tests do not need
        slow = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Xmx{HEAP_MB}m"]
        java, *rest = (one for one in super().argv() if not one.startswith(("-Xm", "-XX:+UseG1GC")))
        return [java, *slow, *rest]

    def _settings(self) -> dict[str, object]:
        clients = f"PLAINTEXT://{self.options.address}"
        controllers = f",CONTROLLER://{LOOPBACK}:{self._controller}" if self._is_controller else ""
        return {
            "process.roles": "broker,controller" if self._is_controller else "broker",
            "node.id": self.number,
            "controller.quorum.bootstrap.servers": f"{LOOPBACK}:{self._controller}",
            "listeners": clients + controllers,
            "advertised.listeners": clients + controllers,
            "offsets.topic.replication.factor": NODES,
            "transaction.state.log.replication.factor": NODES,
            # with 2, a coordinator that was alone for a moment may never end the transaction (Kafka 4.3.1)
            "transaction.state.log.min.isr": 1,
            "broker.heartbeat.interval.ms": SESSION_TIMEOUT_MS // 5,
            "broker.session.timeout.ms": SESSION_TIMEOUT_MS,
        }


class KafkaCluster:
    """The nodes by number; `address`: all of them, for clients."""

    def __init__(self, home: Path) -> None:
        cluster_id = new_cluster_id()
        first = KafkaNode(home / "1", 1, cluster_id, None)
        others = (
            KafkaNode(home / str(n), n, cluster_id, first.options.controller_port)
            for n in range(2, NODES + 1)
        )
        self.nodes = {node.number: node for node in (first, *others)}
        self.address = ",".join(node.address for node in self.nodes.values())

    def __repr__(self) -> str:
        return f"<KafkaCluster at {self.address}>"

    def start(self) -> None:
        """Starts what does not run; returns when all replicas of all topics are in step."""
        with ThreadPoolExecutor(NODES) as starting:
            for started in [starting.submit(node.start) for node in self.nodes.values()]:
                started.result()
        self.nodes[1].wait_until(self.is_whole)

    def kill(self) -> None:
        """Ends all nodes."""
        for node in self.nodes.values():
            node.kill()

    async def is_whole(self) -> bool:
        """Whether all brokers are there and hold what they should."""
        async with Cluster(self.address) as cluster:
            try:
                answer = await cluster.ask_any(MetadataRequest(None))
            except KafkaUnavailable:
                return False
        rows = [row for _, _, _, _, partitions, *_ in answer.topics for row in partitions]
        return len(answer.brokers) == NODES and all(
            len(in_sync) == len(replicas) for _, _, _, _, replicas, in_sync, *_ in rows
        )

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
def kafka_cluster() -> Iterator[KafkaCluster]:
    """Three brokers that run."""
    with temporary_home("kafka3") as home:
        for n in range(1, NODES + 1):
            (home / str(n)).mkdir()
        cluster = KafkaCluster(home)
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.kill()
