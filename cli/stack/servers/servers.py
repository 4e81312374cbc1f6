"""Configuration files and command lines that run ZooKeeper and Kafka without Docker.

Options in, text and arguments out; only `prepare_*` write files. ZooKeeper's jars come with PySpark,
Kafka's from the lock file; the two class paths must not be mixed (slf4j 1.7 and 2.0). The local stack and
the tests run the same servers; every value here has been tried.
"""

from __future__ import annotations

import base64
import uuid
from dataclasses import dataclass
from pathlib import Path

from cli.stack.servers.kafka_locks import KafkaLocks, java_properties, lock_settings
from shared.class_archive import from_archive
from shared.service.private_files import write_private

LOOPBACK = "127.0.0.1"
"""Never a host name, which may resolve to another address."""
LARGEST_BATCH_BYTES = 2_200_000
"""Sessions and checkpoints have up to 2 MB; the batch header comes on top."""
INTERNAL_PARTITIONS = 4
"""Partitions of Kafka's internal topics: the default of 50 costs a single broker files and start-up time."""

_ZOOKEEPER_LOGGING = """status = warn
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{yyyy-MM-dd'T'HH:mm:ss.SSS}{UTC}Z [%t] %p %c - %m%n
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
"""
"""Its default gives the time without a date and a time zone."""


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """A server of the stack with all its files in `home`."""

    home: Path
    port: int
    heap_mb: int

    @property
    def address(self) -> str:
        """`host:port` for clients."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def config(self) -> Path:
        return self.home / "server.properties"

    @property
    def data(self) -> Path:
        return self.home / "data"


@dataclass(frozen=True, kw_only=True)
class ZooKeeperOptions(ServerOptions):
    """One ZooKeeper server."""

    port: int = 2181
    heap_mb: int = 128
    tick_ms: int = 500
    demands_user: bool = False

    @property
    def logging(self) -> Path:
        """The configuration of its log."""
        return self.home / "log4j2.properties"


@dataclass(frozen=True, kw_only=True)
class KafkaOptions(ServerOptions):
    """One Kafka broker that is its own controller. `locks`: what it demands of clients; None: nothing."""

    port: int = 9092
    heap_mb: int = 512
    controller_port: int = 9093
    log_level: str = "warn"
    locks: KafkaLocks | None = None

    @property
    def is_formatted(self) -> bool:
        """Whether the storage is formatted, which happens once."""
        return (self.data / "meta.properties").exists()


def zookeeper_config(options: ZooKeeperOptions) -> str:
    """ZooKeeper's configuration; its sessions may be 2 ticks to 60 s long."""
    # any user and password will do: what they open, the ACLs of the znodes decide
    demand = {"enforce.auth.enabled": "true", "enforce.auth.schemes": "digest"}
    return _lines(
        {
            "dataDir": options.data,
            "clientPort": options.port,
            "clientPortAddress": LOOPBACK,
            # a session has at least 2 ticks, so the default of 2 s would make every failover slow
            "tickTime": options.tick_ms,
            "maxSessionTimeout": 60_000,
            # every process connects from one address, which the default limits to 60
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
            # aiozk asks `srvr` before it trusts a server
            "4lw.commands.whitelist": "srvr,ruok,mntr",
            "autopurge.snapRetainCount": 3,
            "autopurge.purgeInterval": 1,
            **(demand if options.demands_user else {}),
        }
    )


def zookeeper_argv(options: ZooKeeperOptions, java: str, jars: Path) -> list[str]:
    """The command line of the server; `jars` is PySpark's folder."""
    return [
        *(java, f"-Xmx{options.heap_mb}m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
        f"-Dlog4j2.configurationFile={options.logging}",
        *("-Dzookeeper.jmx.log4j.disable=true", "-Dzookeeper.preAllocSize=4096"),
        *("-cp", f"{jars}/*", "org.apache.zookeeper.server.ZooKeeperServerMain", str(options.config)),
    ]


def kafka_config(options: KafkaOptions) -> str:
    """The text of `server.properties`. The retention of offsets stays at Kafka's default."""
    controller = f"{LOOPBACK}:{options.controller_port}"
    settings: dict[str, object] = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.bootstrap.servers": controller,
        "listeners": f"PLAINTEXT://{options.address},CONTROLLER://{controller}",
        "advertised.listeners": f"PLAINTEXT://{options.address},CONTROLLER://{controller}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": options.data,
        # a misspelt topic must fail instead of coming into being
        "auto.create.topics.enable": "false",
        # the default makes the first consumer of a group wait for 3 s
        "group.initial.rebalance.delay.ms": 0,
        "message.max.bytes": LARGEST_BATCH_BYTES,
        "replica.fetch.max.bytes": LARGEST_BATCH_BYTES,
        "offsets.topic.num.partitions": INTERNAL_PARTITIONS,
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.num.partitions": INTERNAL_PARTITIONS,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "share.coordinator.state.topic.num.partitions": 1,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        # a killed broker can register again only after its old registration has expired
        "broker.heartbeat.interval.ms": 500,
        "broker.session.timeout.ms": 3000,
        # end a dead owner's open transaction at its time-out, not up to ten seconds later
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000,
        # the default takes 128 MB of the heap
        "log.cleaner.dedupe.buffer.size": 16 * 1024 * 1024,
    }
    if options.locks is not None:
        settings |= lock_settings(options.locks, LOOPBACK, options.port, options.controller_port)
    return _lines(settings)


def kafka_argv(options: KafkaOptions, java: str, class_path: str) -> list[str]:
    """The command line of the broker."""
    return [
        *(java, f"-Xms{options.heap_mb // 2}m", f"-Xmx{options.heap_mb}m", "-XX:+UseG1GC"),
        # the full compiler costs more in the first minutes than it saves later (docs/performance.md)
        "-XX:TieredStopAtLevel=1",
        *from_archive("kafka"),
        *java_properties(options.locks),
        *kafka_logging(options.log_level),
        *("-cp", class_path, "kafka.Kafka", str(options.config)),
    ]


def kafka_format_argv(options: KafkaOptions, java: str, class_path: str, cluster_id: str) -> list[str]:
    """The command line that formats the storage; it does nothing to a formatted one."""
    return [
        *(java, "-Xmx256m", "-XX:TieredStopAtLevel=1", *from_archive("kafka")),
        *(*kafka_logging("warn"), "-cp", class_path),
        *("kafka.tools.StorageTool", "format", "--standalone", "--ignore-formatted"),
        *("-t", cluster_id, "-c", str(options.config)),
    ]


def new_cluster_id() -> str:
    """A random cluster id in Kafka's form: 16 bytes as 22 characters, not starting with `-`."""
    while True:
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # Kafka's tool would read it as an option
        if not cluster_id.startswith("-"):
            return cluster_id


def prepare_zookeeper(options: ZooKeeperOptions) -> None:
    """Writes the configuration and keeps existing data."""
    _write_config(options, zookeeper_config(options))
    options.logging.write_text(_ZOOKEEPER_LOGGING)


def prepare_kafka(options: KafkaOptions) -> None:
    """Writes the configuration and keeps existing data."""
    _write_config(options, kafka_config(options))


def _write_config(options: ServerOptions, text: str) -> None:
    options.data.mkdir(parents=True, exist_ok=True)
    # a secured broker's has passwords
    write_private(options.config, text.encode())


def kafka_logging(level: str) -> tuple[str, ...]:
    simple = "-Dorg.slf4j.simpleLogger"
    return (
        f"{simple}.defaultLogLevel={level}",
        f"{simple}.showDateTime=true",
        f"{simple}.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSSZ",
    )


def _lines(settings: dict[str, object]) -> str:
    return "".join(f"{name}={value}\n" for name, value in settings.items())
