"""The settings that every service has: where Kafka and ZooKeeper are, where to listen, what to log."""

from __future__ import annotations

import socket
from dataclasses import dataclass

from shared.model.names import Names, is_namespace
from shared.service.settings import setting
from shared.zookeeper.secret import LEAST_BYTES

EVERYWHERE = frozenset({"0.0.0.0", "::"})
"""To listen at all interfaces: no address at which others could reach anybody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    """Read from `BATON_…` variables; each service extends it."""

    kafka: str = setting("127.0.0.1:9092", "bootstrap servers of Kafka, `host:port,…`")
    zookeeper: str = setting("127.0.0.1:2181", "servers of ZooKeeper, `host:port,…`")
    namespace: str = setting("", "sets several Batons apart on one Kafka and ZooKeeper")
    host: str = setting("127.0.0.1", "address to listen at")
    port: int = setting(8000, "port to listen at", low=1, high=65_535, outside="there are no other ports")
    advertise: str = setting(
        "",
        "base URL at which others reach this service; empty: `http://host:port`, with the machine's name "
        "for a host that means all interfaces",
    )
    zookeeper_timeout_s: float = setting(
        6.0,
        "time-out of the ZooKeeper session",
        unit="s",
        low=1,
        high=60,
        outside="shorter takes a pause for a death; longer leaves a dead member's streams unowned",
    )
    replication: int = setting(
        1,
        "replication factor of the topics that Baton creates",
        low=1,
        high=9,
        outside="more than there are brokers cannot be created",
    )
    secret: str = setting(
        "",
        "what members and control sign their requests to each other with, the same for all, at least "
        "16 bytes; empty: a random one that stands in ZooKeeper",
        secret=True,
    )
    log_level: str = setting("INFO", "least level to log", choices=("DEBUG", "INFO", "WARNING", "ERROR"))

    @property
    def names(self) -> Names:
        """Every name in Kafka and ZooKeeper."""
        return Names(self.namespace)

    @property
    def address(self) -> str:
        """The base URL that stands in ZooKeeper, without a trailing slash."""
        if self.advertise:
            return self.advertise.rstrip("/")
        host = socket.gethostname() if self.host in EVERYWHERE else self.host
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    def check(self) -> list[str]:
        """Faults of relations between settings."""
        faults = []
        if not is_namespace(self.namespace):
            faults.append(f"BATON_NAMESPACE={self.namespace!r}: lower-case letters, digits and `-` only")
        if self.secret and len(self.secret.encode()) < LEAST_BYTES:
            faults.append(f"BATON_SECRET has less than {LEAST_BYTES} bytes: it can be guessed")
        return faults
