"""The locks of a local stack that `baton up --secure` starts: certificates, passwords, tokens, users, rights.

They are in the folder `locks` of the stack's home, which only its owner may enter. Certificates are new at
each start; passwords stay, because the data of Kafka and ZooKeeper know them. Each service and the command
line is a principal of its own in Kafka, with the least rights. Used by `cli/stack/local/stack.py`.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path

from cli.kafka.rights import rights_of
from cli.stack.secured.certificates import Authority, ensure_authority
from cli.stack.secured.znode_locks import change_acls
from cli.stack.servers.kafka_locks import BROKER, KafkaLocks
from cli.stack.servers.servers import LOOPBACK
from services.control.http.api.access.caller import ROLES
from shared.kafka.admin.users import Right, grant, set_password
from shared.kafka.connect.access import KafkaAccess, access_from
from shared.kafka.connect.cluster import Cluster
from shared.model.names import Names
from shared.service.known_settings import KNOWN
from shared.service.private_files import write_private
from shared.service.tls import TlsFiles
from shared.zookeeper.access import access_source
from shared.zookeeper.connection import ZooKeeper

FOLDER = "locks"
ADMIN = "admin"
"""Makes the users; nothing else has its certificate."""
OPERATOR = "operator"
"""The command line."""
ZOOKEEPER_USER = "baton"
PRINCIPALS = {
    "producer": ("producer",),
    "consumer": ("consumer", "follower"),
    "queue": ("queue",),
    "control": ("control", "spark"),  # it starts the jobs with its own access
    OPERATOR: ("command line",),
}
"""Which rights each user in Kafka has."""
PASSWORD_BYTES = 24
SPARK = "spark"
"""The secret that the processes of the stack's Spark cluster share."""
TOKENS = "control.tokens"
"""The tokens of control, one for each role."""
LOCK_VARIABLES = frozenset(
    name for name in KNOWN if name.startswith(("BATON_KAFKA_", "BATON_TLS_", "BATON_ZOOKEEPER_"))
) - {"BATON_ZOOKEEPER_TIMEOUT_S"} | {"BATON_SPARK_SECRET_FILE", "BATON_CONTROL_TOKENS_FILE"}
"""Those of a shell are for another stack: services of this one must not take them over."""
SESSION_TIMEOUT_S = 10.0


def is_secured(home: Path) -> bool:
    """Whether the data in this home have been locked by an earlier start."""
    return (home / FOLDER).exists()


@dataclass(frozen=True, slots=True, kw_only=True)
class StackLocks:
    """The files in `folder`, once `make_locks` has made them; all of it only names them."""

    folder: Path
    certificate_port: int

    @property
    def kafka(self) -> KafkaLocks:
        """What the broker demands."""
        return KafkaLocks(
            keystore=self.folder / f"{BROKER}.keystore.pem",
            trust=self.folder / "ca.pem",
            certificate_port=self.certificate_port,
            superusers=(BROKER, ADMIN),
        )

    @property
    def admin(self) -> KafkaAccess:
        """The access of the one who makes the users."""
        return KafkaAccess(
            bootstrap=f"{LOOPBACK}:{self.certificate_port}",
            security_protocol="SSL",
            ca_file=str(self.folder / "ca.pem"),
            certificate_file=str(self.folder / f"{ADMIN}.pem"),
            key_file=str(self.folder / f"{ADMIN}.key"),
        )

    @property
    def tls(self) -> TlsFiles:
        """What the command line shows to the services."""
        return TlsFiles.from_environment(self.tls_environment(OPERATOR))

    def kafka_access(self, bootstrap: str) -> KafkaAccess:
        """The command line's access to the stack's broker."""
        return access_from(self.kafka_environment(OPERATOR), bootstrap)

    def service_environment(self, service: str) -> dict[str, str]:
        """All variables of a service's locks."""
        trust = {"BATON_TLS_CLIENT_CA_FILE": str(self.folder / "ca.pem")}
        kafka, tls = self.kafka_environment(service), self.tls_environment(service)
        return kafka | tls | trust | self.zookeeper_environment | self._own_environment(service)

    def _own_environment(self, service: str) -> dict[str, str]:
        if service != "control":
            return {}
        return {
            "BATON_SPARK_SECRET_FILE": str(self.spark_secret),
            "BATON_CONTROL_TOKENS_FILE": str(self.folder / TOKENS),
        }

    def kafka_environment(self, principal: str) -> dict[str, str]:
        """The variables with which Kafka's clients are let in."""
        return {
            "BATON_KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
            "BATON_KAFKA_CA_FILE": str(self.folder / "ca.pem"),
            "BATON_KAFKA_SASL_MECHANISM": "SCRAM-SHA-512",
            "BATON_KAFKA_USER": principal,
            "BATON_KAFKA_PASSWORD_FILE": str(self._password_file(f"kafka-{principal}")),
        }

    def tls_environment(self, principal: str) -> dict[str, str]:
        """The variables with which the services' clients are let in."""
        return {
            "BATON_TLS_CA_FILE": str(self.folder / "ca.pem"),
            "BATON_TLS_CERTIFICATE_FILE": str(self.folder / f"{principal}.pem"),
            "BATON_TLS_KEY_FILE": str(self.folder / f"{principal}.key"),
        }

    @property
    def token_file(self) -> Path:
        """The file with the token that the command line shows to control."""
        return self._password_file("control-admin")

    @property
    def zookeeper_environment(self) -> dict[str, str]:
        """The variables with which ZooKeeper's clients may use the znodes."""
        return {
            "BATON_ZOOKEEPER_USER": ZOOKEEPER_USER,
            "BATON_ZOOKEEPER_PASSWORD_FILE": str(self._password_file("zookeeper")),
        }

    @property
    def spark_secret(self) -> Path:
        """The file with the secret of the stack's Spark cluster."""
        return self._password_file(SPARK)

    async def admit(self, names: Names, zookeeper: str) -> None:
        """Makes the users on the running servers, with their rights; locks znodes that exist.

        Raises KafkaUnavailable, ZooKeeperUnavailable.
        """
        async with Cluster(self.admin) as cluster:
            for user, roles in PRINCIPALS.items():
                password = self._password_file(f"kafka-{user}").read_text().strip()
                rights: list[Right] = [right for role in roles for right in rights_of(role, names)]
                await set_password(cluster, user, password)
                await grant(cluster, user, rights)
        access = access_source(ZOOKEEPER_USER, str(self._password_file("zookeeper")))
        async with ZooKeeper(zookeeper, SESSION_TIMEOUT_S, access) as client:
            await change_acls(client, names.root, is_locked=True)

    def _password_file(self, name: str) -> Path:
        return self.folder / f"{name}.password"


def make_locks(home: Path, certificate_port: int) -> StackLocks:
    """The locks of the stack in this home: certificates made anew, passwords made where there are none."""
    folder = home / FOLDER
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    locks = StackLocks(folder=folder, certificate_port=certificate_port)
    authority: Authority = ensure_authority(folder)
    for name in (BROKER, ADMIN, *PRINCIPALS):
        authority.issue(name)
    for name in ("zookeeper", SPARK, *(f"kafka-{user}" for user in PRINCIPALS)):
        _ensure_password(folder / f"{name}.password")
    tokens = {role: _ensure_password(folder / f"control-{role}.password") for role in ROLES}
    lines = "".join(f"{token} {role} name={role}\n" for role, token in tokens.items())
    write_private(folder / TOKENS, lines.encode())
    return locks


def _ensure_password(file: Path) -> str:
    """The password in the file, which is made if it is missing."""
    if not file.exists():
        write_private(file, f"{secrets.token_urlsafe(PASSWORD_BYTES)}\n".encode())
    return file.read_text().strip()
