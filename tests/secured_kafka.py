"""A broker that demands TLS, a principal and rights of every client, and accesses of all kinds to it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import time
from dataclasses import replace
from pathlib import Path

from cli.kafka.rights import PRINCIPALS, rights_of
from cli.kafka.users import grant, set_password
from cli.stack.certificates import make_authority
from cli.stack.kafka_locks import BROKER, KafkaLocks
from cli.stack.private_files import write_private
from cli.stack.servers import LOOPBACK
from shared.errors import KafkaUnavailable
from shared.kafka.access import BY_TOKEN, KafkaAccess
from shared.kafka.cluster import Cluster
from shared.model.names import Names
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
        self._plain_users = dict.fromkeys(USERS, PASSWORD)
        self.options = replace(
            self.options,
            locks=KafkaLocks(
                keystore=self.authority.issue(BROKER).keystore,
                trust=self.authority.trust,
                certificate_port=free_port(),
                superusers=(BROKER, ADMIN),
                plain_users=self._plain_users,
                has_test_tokens=True,
                session_ms=session_ms,
            ),
        )

    @property
    def root(self) -> KafkaAccess:
        """A superuser's access, by certificate."""
        return self.by_certificate(ADMIN)

    async def allow(self, principal: str, names: Names) -> str:
        """Grants exactly the rights of one of Baton's principals; returns the user's name."""
        user = principal.replace(" ", "-")
        async with Cluster(self.root) as cluster:
            await grant(cluster, user, rights_of(principal, names))
        return user

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
            secrets = (token(name),) if mechanism == BY_TOKEN else (PASSWORD,)
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


def token(name: str, *, ends_in_s: float = 3600.0) -> str:
    """A token that nobody has signed, as the broker of the tests accepts it."""
    now_s = time.time()
    claims = {"sub": name, "iat": now_s - 7200, "exp": now_s + ends_in_s}
    return f"{_encoded({'alg': 'none'})}.{_encoded(claims)}."


def _encoded(content: dict[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")
