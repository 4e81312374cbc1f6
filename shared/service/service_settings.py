"""The settings that all services have: the addresses of Kafka and ZooKeeper, where to listen, what to log."""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

from shared.errors import InvalidInput
from shared.kafka.connect.access import MECHANISMS, PROTOCOLS, KafkaAccess
from shared.model.names import Names, is_namespace
from shared.secret_file import SecretFile
from shared.service.settings import between, one_of, setting
from shared.service.tls import TlsFiles
from shared.zookeeper.access import LOCKED, OPEN, AccessSource, access_source
from shared.zookeeper.secret import IN_ZOOKEEPER, MIN_BYTES

EVERYWHERE = frozenset({"0.0.0.0", "::"})
"""Hosts that mean all interfaces; they are not addresses that others can connect to."""
_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?")
PORTS = between(1, 65_535, "there are no other ports")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    """Read from `BATON_…` variables; each service extends it."""

    kafka: str = setting("127.0.0.1:9092", "bootstrap servers of Kafka, `host:port,…`")
    kafka_security_protocol: str = setting(
        "PLAINTEXT", "what Kafka's brokers demand of connections (docs/security.md)", one_of(*PROTOCOLS)
    )
    kafka_ca_file: str = setting(
        "", "PEM file of the authorities that sign the brokers' certificates; empty: those of the system"
    )
    kafka_certificate_file: str = setting("", "PEM file of the certificate that brokers ask for, if they do")
    kafka_key_file: str = setting(
        "", "PEM file of its key, without a password; empty: in BATON_KAFKA_CERTIFICATE_FILE"
    )
    kafka_sasl_mechanism: str = setting("", "how to authenticate with SASL", one_of(*MECHANISMS))
    kafka_user: str = setting("", "user in Kafka, for all mechanisms but OAUTHBEARER")
    kafka_password_file: str = setting(
        "",
        "file with the password, reread for each connection; a second line is tried if the first is refused",
    )
    kafka_token_file: str = setting(
        "", "file with the token of OAUTHBEARER, reread for each connection; something else renews it"
    )
    zookeeper: str = setting("127.0.0.1:2181", "servers of ZooKeeper, `host:port,…`")
    namespace: str = setting("", "separates several Batons on one Kafka and ZooKeeper")
    host: str = setting("127.0.0.1", "address to listen on")
    port: int = setting(8000, "port to listen on", PORTS)
    advertise: str = setting(
        "",
        "base URL at which others reach this service; empty: `http://host:port` (or https), with the "
        "machine's name if the host means all interfaces",
    )
    tls_certificate_file: str = setting(
        "",
        "PEM file with this service's certificate and the chain to its authority: its ports then speak HTTPS "
        "and it shows the certificate to members; reread when it changes, as the next three; empty: HTTP",
    )
    tls_key_file: str = setting(
        "", "PEM file of its key, without a password; empty: in BATON_TLS_CERTIFICATE_FILE"
    )
    tls_ca_file: str = setting(
        "",
        "PEM file of the authorities that sign the members' certificates; empty: those of the system",
    )
    tls_client_ca_file: str = setting(
        "",
        "PEM file of authorities: only clients with a certificate of one of them reach this service's ports; "
        "empty: clients need none",
    )
    hosts: str = setting(
        "",
        "names under which this service is reached besides loopback names, IP addresses and its own address, "
        "`name,…`: of a container, a service, a proxy; a request with another name in its `Host` gets 421",
    )
    max_connections: int = setting(
        4096,
        "most open connections of all ports, less if the process may not open as many files; a further one "
        "gets 503, except to `/livez`, `/readyz`, `/metrics` and `/status`",
        between(1, 1_000_000, "without a connection there are no requests"),
    )
    header_timeout_s: float = setting(
        10.0,
        "how long a client may take to send a request's headers",
        between(0.1, 600, "shorter cuts off slow clients, longer allows them to occupy connections"),
    )
    read_timeout_s: float = setting(
        30.0,
        "how long a client may take to send a request's body",
        between(0.1, 600, "shorter cuts off slow clients, longer allows them to occupy memory"),
    )
    zookeeper_timeout_s: float = setting(
        6.0,
        "time-out of the ZooKeeper session",
        between(1, 60, "shorter mistakes a pause for a crash; longer leaves a dead member's streams unowned"),
    )
    zookeeper_user: str = setting(
        "",
        "name with which Baton authenticates with ZooKeeper (scheme digest), the same for all; only it may "
        "use the znodes that Baton creates; empty: no name, and everybody may use them",
    )
    zookeeper_password_file: str = setting(
        "",
        "file with the password of BATON_ZOOKEEPER_USER, while it is rotated with two, the new one in the "
        "first line; read again when it changes",
    )
    zookeeper_acl: str = setting(
        LOCKED,
        "`open` authenticates, but still creates znodes that everybody may use: for the time in which the "
        "processes of a running Baton get their user one after the other",
        one_of(LOCKED, OPEN),
    )
    replication: int = setting(
        1,
        "replication factor of the topics that Baton creates; with 2, one broker down stops writing",
        between(1, 9, "Kafka cannot place more replicas than it has brokers"),
    )
    secret: str = setting(
        "",
        "secret with which members and control sign their requests to each other, the same for all, at least "
        "16 bytes; empty: a random one in ZooKeeper",
        secret=True,
    )
    accepted_secret: str = setting(
        "",
        "second secret, accepted but not signed with, while secrets are rotated; `zookeeper`: the random one "
        "in ZooKeeper",
        secret=True,
    )
    secret_file: str = setting(
        "",
        "file with BATON_SECRET and, in a second line while secrets are rotated, BATON_ACCEPTED_SECRET; "
        "instead of these variables",
    )
    log_level: str = setting("INFO", "lowest level to log", one_of("DEBUG", "INFO", "WARNING", "ERROR"))

    @property
    def kafka_access(self) -> KafkaAccess:
        """Where Kafka is and what it demands: for everything that connects to it."""
        return KafkaAccess(
            bootstrap=self.kafka,
            security_protocol=self.kafka_security_protocol,
            ca_file=self.kafka_ca_file,
            certificate_file=self.kafka_certificate_file,
            key_file=self.kafka_key_file,
            sasl_mechanism=self.kafka_sasl_mechanism,
            user=self.kafka_user,
            password_file=self.kafka_password_file,
            token_file=self.kafka_token_file,
        )

    @property
    def names(self) -> Names:
        """Every name in Kafka and ZooKeeper."""
        return Names(self.namespace)

    @property
    def zookeeper_access(self) -> AccessSource | None:
        """How to authenticate with ZooKeeper; None without a user."""
        return access_source(self.zookeeper_user, self.zookeeper_password_file, self.zookeeper_acl)

    @property
    def secrets(self) -> tuple[str, str]:
        """The secret that signs and the one that is accepted, as configured; "" for none.

        Raises InvalidInput if they are in a file that cannot be used any more.
        """
        if not self.secret_file:
            return self.secret, self.accepted_secret
        signing, *accepted = SecretFile(self.secret_file, "BATON_SECRET_FILE").read()
        return signing, "".join(accepted)

    @property
    def tls(self) -> TlsFiles:
        """The files for HTTPS."""
        return TlsFiles(
            certificate=self.tls_certificate_file,
            key=self.tls_key_file,
            ca=self.tls_ca_file,
            client_ca=self.tls_client_ca_file,
        )

    @property
    def address(self) -> str:
        """The base URL to publish in ZooKeeper, without a trailing slash."""
        if self.advertise:
            return self.advertise.rstrip("/")
        host = socket.gethostname() if self.host in EVERYWHERE else self.host
        scheme = "https" if self.tls.is_serving else "http"
        return f"{scheme}://[{host}]:{self.port}" if ":" in host else f"{scheme}://{host}:{self.port}"

    @property
    def own_hosts(self) -> list[str]:
        """The names of this service: where it listens, what it advertises, and those of BATON_HOSTS."""
        own = (self.host, urlsplit(self.address).hostname or "")
        return [name for name in (*own, *_names_in(self.hosts)) if name]

    def remarks(self) -> list[str]:
        """What an operator should know about these valid settings; the service logs it when it starts."""
        remarks = self.kafka_access.remarks()
        if self.replication == 2:
            remarks.append(
                "BATON_REPLICATION=2: one broker down stops writing, because two replicas must have a record "
                "before it counts as stored; with 3 replicas one may be down"
            )
        return remarks

    def check(self) -> list[str]:
        """Faults of settings that are valid on their own."""
        faults = self.kafka_access.faults() + self.tls.faults()
        if not is_namespace(self.namespace):
            faults.append(f"BATON_NAMESPACE={self.namespace!r}: lower-case letters, digits and `-` only")
        for name in _names_in(self.hosts):
            if not _NAME.fullmatch(name):
                faults.append(
                    f"BATON_HOSTS: {name!r} is not a host name (neither scheme nor port belong here)"
                )
        faults += self._secret_faults()
        if bool(self.zookeeper_user) != bool(self.zookeeper_password_file):
            faults.append("BATON_ZOOKEEPER_USER and BATON_ZOOKEEPER_PASSWORD_FILE: set both, or neither")
        if self.zookeeper_access is not None and self.zookeeper_password_file:
            faults += self.zookeeper_access.file.faults()
        if ":" in self.zookeeper_user:
            faults.append("BATON_ZOOKEEPER_USER: a name with `:` would end there")
        return faults

    def _secret_faults(self) -> list[str]:
        if not self.secret_file:
            where = ("BATON_SECRET", "BATON_ACCEPTED_SECRET")
        elif self.secret or self.accepted_secret:
            return ["BATON_SECRET_FILE has the secrets: unset BATON_SECRET and BATON_ACCEPTED_SECRET"]
        else:
            where = ("BATON_SECRET_FILE: the first line", "BATON_SECRET_FILE: the second line")
        try:
            signing, accepted = self.secrets
        except InvalidInput as error:
            return [error.detail]
        given = (signing, "" if accepted == IN_ZOOKEEPER else accepted)
        return [
            f"{name} has less than {MIN_BYTES} bytes: it can be guessed"
            for name, secret in zip(where, given, strict=True)
            if secret and len(secret.encode()) < MIN_BYTES
        ]


def _names_in(hosts: str) -> list[str]:
    return [name for part in hosts.split(",") if (name := part.strip())]
