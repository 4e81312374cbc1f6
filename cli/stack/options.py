"""The options of a local stack, the ports they lead to, and the environment of each service.

Pure. Services read only their environment, so what is built here is the whole contract between the launcher
and the services. Docker compose uses the same ports (docs/operations.md).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cli.stack.servers.servers import LOOPBACK, KafkaOptions, ZooKeeperOptions
from services.consumer.settings import ConsumerSettings
from services.control.core.lake.paths import TABLES
from services.control.settings import ControlSettings
from services.producer.settings import ProducerSettings
from services.queue.settings import QueueServiceSettings
from shared.errors import SettingsInvalid
from shared.model.names import is_namespace
from shared.service.known_settings import KNOWN
from shared.service.service_settings import ServiceSettings
from shared.service.settings import variable_for

SERVICES: dict[str, type[ServiceSettings]] = {
    "producer": ProducerSettings,
    "consumer": ConsumerSettings,
    "control": ControlSettings,
    "queue": QueueServiceSettings,
}

MAX_STREAMS = 4096
MAX_CONSUMERS = 64
MAX_SPARK_WORKERS = 16
HIGHEST_OFFSET = 65_535 - 9_094
SIGNING = {"BATON_SECRET", "BATON_ACCEPTED_SECRET", "BATON_SECRET_FILE"}
"""Members and control sign with these. The producer, which strangers reach, has no use for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackOptions:
    """A local stack.

    `kafka` and `zookeeper` are addresses of running servers; without them the stack starts its own.
    `spark_workers`: workers of a Spark cluster for the jobs; without any, each job runs in its driver.
    `secure`: its servers and services demand and show certificates and passwords (`secured/locks.py`).
    `control_tokens`: a file with the tokens of control's callers; a secured stack makes its own.
    `environment` goes to every service and overrides the launcher's environment.
    """

    home: Path = Path(".baton")
    port_offset: int = 0
    consumers: int = 3
    streams: int = 24
    namespace: str = ""
    kafka: str | None = None
    zookeeper: str | None = None
    spark_workers: int = 0
    secure: bool = False
    control_tokens: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)

    def check(self) -> None:
        """Raises SettingsInvalid with every fault."""
        ranges = {
            "--consumers": (self.consumers, 0, MAX_CONSUMERS),
            "--streams": (self.streams, 1, MAX_STREAMS),
            "--spark-workers": (self.spark_workers, 0, MAX_SPARK_WORKERS),
            "--port-offset": (self.port_offset, -1_000, HIGHEST_OFFSET),
        }
        # every fault at once, like the services do with their settings
        faults = [
            f"{name} {value}: must be {low} … {high}"
            for name, (value, low, high) in ranges.items()
            if not low <= value <= high
        ]
        if not is_namespace(self.namespace):
            faults.append(f"--namespace {self.namespace!r}: lower-case letters, digits and `-` only")
        if self.namespace in TABLES:
            faults.append(f"--namespace {self.namespace!r}: a table of the lake has this name")
        if self.secure and (self.kafka or self.zookeeper):
            faults.append("--secure: only servers of the stack's own can be secured")
        if self.secure and self.control_tokens:
            faults.append("--control-tokens: a secured stack makes tokens of its own (home/locks)")
        if faults:
            raise SettingsInvalid(faults)

    @property
    def control_port(self) -> int:
        return 8000 + self.port_offset

    @property
    def control_url(self) -> str:
        return self.url_of(self.control_port)

    @property
    def producer_port(self) -> int:
        return 8001 + self.port_offset

    @property
    def producer_url(self) -> str:
        return self.url_of(self.producer_port)

    @property
    def queue_port(self) -> int:
        return 8002 + self.port_offset

    @property
    def queue_url(self) -> str:
        return self.url_of(self.queue_port)

    def url_of(self, port: int) -> str:
        """The base URL of the service at this port."""
        return f"{'https' if self.secure else 'http'}://{LOOPBACK}:{port}"

    def consumer_port(self, index: int) -> int:
        """The port of consumer `index` (0 …)."""
        return 8010 + index + self.port_offset

    @property
    def spark_master_port(self) -> int:
        return 7077 + self.port_offset

    @property
    def spark_master(self) -> str:
        """The stack's own Spark cluster; "" without one."""
        return f"spark://{LOOPBACK}:{self.spark_master_port}" if self.spark_workers else ""

    def spark_worker_port(self, index: int) -> int:
        """The port of Spark's worker `index` (0 …)."""
        return 7080 + index + self.port_offset

    @property
    def kafka_options(self) -> KafkaOptions:
        """The stack's own broker."""
        return KafkaOptions(
            home=self.home / "kafka",
            port=9092 + self.port_offset,
            controller_port=9093 + self.port_offset,
            log_level="info",
        )

    @property
    def certificate_port(self) -> int:
        """Where a secured broker admits clients by their certificates."""
        return 9094 + self.port_offset

    @property
    def zookeeper_options(self) -> ZooKeeperOptions:
        """The stack's own ZooKeeper."""
        return ZooKeeperOptions(home=self.home / "zookeeper", port=2181 + self.port_offset)

    @property
    def kafka_address(self) -> str:
        return self.kafka or self.kafka_options.address

    @property
    def zookeeper_address(self) -> str:
        return self.zookeeper or self.zookeeper_options.address


def ports_of(options: StackOptions) -> dict[str, int]:
    """Every port of the stack, by the name of the process that listens on it."""
    ports = {"control": options.control_port, "producer": options.producer_port, "queue": options.queue_port}
    ports |= {f"consumer-{i}": options.consumer_port(i) for i in range(options.consumers)}
    if options.spark_workers:
        ports["spark-master"] = options.spark_master_port
        ports |= {f"spark-worker-{i}": options.spark_worker_port(i) for i in range(options.spark_workers)}
    # a server that already runs has its port
    if options.kafka is None:
        ports["kafka"] = options.kafka_options.port
        ports["kafka controller"] = options.kafka_options.controller_port
        if options.secure:
            ports["kafka by certificate"] = options.certificate_port
    if options.zookeeper is None:
        ports["zookeeper"] = options.zookeeper_options.port
    return ports


def lake_of(options: StackOptions, base: Mapping[str, str]) -> str:
    """The folder or URL of the stack's tables: BATON_LAKE, or without it a folder in the home."""
    lake = {**base, **options.environment}.get("BATON_LAKE") or str(options.home / "lake")
    return lake if "://" in lake else str(Path(lake).absolute())


def environment_of(options: StackOptions, port: int, base: Mapping[str, str], **own: str) -> dict[str, str]:
    """The environment of a service: `base` (the launcher's own), the stack's options, then `own`.

    `own` takes names without the prefix: `member="consumer-0"` is BATON_MEMBER.
    """
    stack = {
        "BATON_KAFKA": options.kafka_address,
        "BATON_ZOOKEEPER": options.zookeeper_address,
        "BATON_NAMESPACE": options.namespace,
        "BATON_STREAMS": str(options.streams),
        "SPARK_LOCAL_IP": LOOPBACK,
        "PYTHONUNBUFFERED": "1",
    }
    # last, since no two services can listen on the same port
    mine = {"BATON_HOST": LOOPBACK, "BATON_PORT": str(port)}
    mine |= {f"BATON_{name.upper()}": value for name, value in own.items()}
    # later ones win
    return {**base, **stack, **options.environment, **mine}


def own_environment(environment: Mapping[str, str], service: str = "") -> dict[str, str]:
    """The environment without the settings of other processes, some of which are their secrets.

    `service`: whose it is; "" for a server, which has no setting of Baton's. Keys of an object store are
    control's alone: its drivers pass them to the executors.
    """
    own = {"BATON_CACHE"}
    if service:
        own |= {variable_for(one.name) for one in dataclasses.fields(SERVICES[service])}
    if service == "producer":
        own -= SIGNING
    return {
        name: value
        for name, value in environment.items()
        if name in own or not (name in KNOWN or (name.startswith("AWS_") and service != "control"))
    }
