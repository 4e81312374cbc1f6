"""A broker that demands TLS, a principal and rights of every client, and accesses of all kinds to it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import re
import time
from dataclasses import replace
from pathlib import Path

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from cli.kafka.rights import PRINCIPALS, rights_of
from cli.stack.secured.certificates import make_authority
from cli.stack.servers.kafka_locks import BROKER, KafkaLocks
from cli.stack.servers.servers import LOOPBACK
from shared.errors import KafkaUnavailable
from shared.kafka.admin.users import grant, set_password
from shared.kafka.connect.access import BY_TOKEN, KafkaAccess
from shared.kafka.connect.cluster import Cluster
from shared.model.names import Names
from shared.service.private_files import write_private
from tests.servers import KafkaServer, free_port

ADMIN = "admin"
PASSWORD = 'correct "horse" \\battery'
"""With what a configuration in Java must escape."""
USERS = (ADMIN, "nobody", "rotating", *(principal.replace(" ", "-") for principal in PRINCIPALS))
"""Who has a password, for PLAIN and SCRAM."""
SESSION_MS = 1_500


class SecuredKafka(KafkaServer):
    """`root` may do everything. Whoever else wants to must be granted it."""

    def __init__(self, home: Path, *, session_ms: int = SESSION_MS) -> None:
        super().__init__(home)
        self.authority = make_authority(home / "certificates")
        self._tokens = Tokens(home)
        self._plain_users = dict.fromkeys(USERS, PASSWORD)
        self.options = replace(
            self.options,
            locks=KafkaLocks(
                keystore=self.authority.issue(BROKER).keystore,
                trust=self.authority.trust,
                certificate_port=free_port(),
                superusers=(BROKER, ADMIN),
                plain_users=self._plain_users,
                token_keys=self._tokens.keys,
                session_ms=session_ms,
            ),
        )

    @property
    def root(self) -> KafkaAccess:
        """A superuser's access, by certificate."""
        return self.by_certificate(ADMIN)

    async def allow(self, principal: str, names: Names, user: str = "") -> str:
        """Grants the user, by default the one of that name, the rights of one of Baton's principals; returns
        the user's name.
        """
        user = user or principal.replace(" ", "-")
        async with Cluster(self.root) as cluster:
            await grant(cluster, user, rights_of(principal, names))
        return user

    def used_rights(self, user: str) -> set[tuple[str, str, str]]:
        """Which of the user's rights have decided anything: kind and name of the resource, and operation."""
        resource = r"resourceType=(\w+), resourceName=(\S+), patternType=\w+"
        rule = (
            rf"StandardAcl.{resource}, principal=User:{user}, host=\*, operation=(\w+), permissionType=ALLOW"
        )
        found = re.findall(rule, self.output())
        return {(_spelled(kind), name, _spelled(operation)) for kind, name, operation in found}

    def by_certificate(self, name: str) -> KafkaAccess:
        """The access of a principal with a new certificate."""
        issued = self.authority.issue(name)
        assert self.options.locks is not None
        return KafkaAccess(
            bootstrap=f"{LOOPBACK}:{self.options.locks.certificate_port}",
            security_protocol="SSL",
            ca_file=str(self.authority.trust),
            certificate_file=str(issued.certificate),
            key_file=str(issued.key),
        )

    def by_secret(self, mechanism: str, name: str = ADMIN, *secrets: str) -> KafkaAccess:
        """The access of a principal with a password or token, or these, one a line."""
        if not secrets:
            secrets = (self.token(name),) if mechanism == BY_TOKEN else (PASSWORD,)
        file = self.home / f"{mechanism}-{name}-{time.monotonic_ns()}"
        write_private(file, "".join(f"{secret}\n" for secret in secrets).encode())
        access = KafkaAccess(
            bootstrap=self.address,
            security_protocol="SASL_SSL",
            ca_file=str(self.authority.trust),
            sasl_mechanism=mechanism,
        )
        if mechanism == BY_TOKEN:
            return replace(access, token_file=str(file))
        return replace(access, user=name, password_file=str(file))

    def token(self, name: str, *, ends_in_s: float = 3600.0) -> str:
        """A token that this broker accepts until it ends."""
        now_s = int(time.time())
        return self._tokens.sign({"sub": name, "iat": now_s - 7200, "exp": now_s + ends_in_s})

    def argv(self) -> list[str]:
        """With a log of each right that was used."""
        java, *rest = super().argv()
        return [java, "-Dorg.slf4j.simpleLogger.log.kafka.authorizer.logger=debug", *rest]

    async def answers(self) -> bool:
        """Whether it serves the superuser; then the users of SCRAM are there, too."""
        async with Cluster(self.root) as cluster:
            with contextlib.suppress(KafkaUnavailable, TimeoutError):
                async with asyncio.timeout(3.0):
                    for name in self._plain_users:
                        # PLAIN's are in the configuration
                        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
                            await set_password(cluster, name, PASSWORD, mechanism)
                    return True
        return False


def _spelled(name: str) -> str:
    return name.lower().replace("_", "-")


class Tokens:
    """Signs tokens; `keys` is the file by which a broker checks them."""

    def __init__(self, home: Path) -> None:
        self.keys = home / "jwks.json"
        self._key = ec.generate_private_key(ec.SECP256R1())
        point = self._key.public_key().public_numbers()
        key = {"kty": "EC", "crv": "P-256", "kid": "1", "use": "sig", "alg": "ES256"}
        key |= {"x": _encoded(point.x.to_bytes(32, "big")), "y": _encoded(point.y.to_bytes(32, "big"))}
        home.mkdir(parents=True, exist_ok=True)
        self.keys.write_text(json.dumps({"keys": [key]}))

    def sign(self, claims: dict[str, object]) -> str:
        """A JSON web token (RFC 7519)."""
        parts = ({"alg": "ES256", "typ": "JWT", "kid": "1"}, claims)
        signed = ".".join(_encoded(json.dumps(part).encode()) for part in parts)
        r, s = decode_dss_signature(self._key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{signed}.{_encoded(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"


def _encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")
