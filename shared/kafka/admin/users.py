"""Users and rights on a broker: what `baton up --secure` and tests need of Kafka's own tools.

In production the operators of Kafka do both (docs/security.md). Passwords go over the wire salted and hashed,
never on a command line. The caller must be a superuser, or may alter the cluster.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from aiokafka.errors import for_code
from aiokafka.protocol.api import RequestStruct, Response
from aiokafka.protocol.types import (
    CompactArray,
    CompactBytes,
    CompactString,
    Int8,
    Int16,
    Int32,
    Schema,
    TaggedFields,
)

from shared.errors import KafkaUnavailable
from shared.kafka.connect.cluster import Cluster

Resource = Literal["topic", "group", "transactional-id"]
Pattern = Literal["literal", "prefixed"]
ITERATIONS = 4096
"""The least that Kafka accepts. More would protect passwords that people choose; these are random."""
_HASHES = {"SCRAM-SHA-256": (1, "sha256"), "SCRAM-SHA-512": (2, "sha512")}
_RESOURCES = {"topic": 2, "group": 3, "cluster": 4, "transactional-id": 5}
_PATTERNS = {"literal": 3, "prefixed": 4}
_OPERATIONS = {
    "read": 3,
    "write": 4,
    "create": 5,
    "delete": 6,
    "alter": 7,
    "describe": 8,
    "describe-configs": 10,
    "alter-configs": 11,
    "idempotent-write": 12,
}
_ALLOW = 3
_TAGS = ("tags", TaggedFields)
_OUTCOME = (("error_code", Int16), ("error_message", CompactString()), _TAGS)


@dataclass(frozen=True, slots=True)
class Right:
    """Operations that are allowed on every resource with this name, or with names that begin so."""

    resource: Resource
    name: str
    pattern: Pattern
    operations: tuple[str, ...]


class ChangedPasswords(Response):  # type: ignore[misc]
    API_KEY, API_VERSION = 51, 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32), ("results", CompactArray(("user", CompactString()), *_OUTCOME)), _TAGS
    )


class ChangePasswords(RequestStruct):  # type: ignore[misc]
    """Sets SCRAM passwords; `repr` shows none, and none of what could be used in its place."""

    API_KEY, API_VERSION, FLEXIBLE_VERSION, RESPONSE_TYPE = 51, 0, True, ChangedPasswords
    SCHEMA = Schema(
        ("deletions", CompactArray(("name", CompactString()), ("mechanism", Int8), _TAGS)),
        (
            "upsertions",
            CompactArray(
                ("name", CompactString()),
                ("mechanism", Int8),
                ("iterations", Int32),
                ("salt", CompactBytes),
                ("salted_password", CompactBytes),
                _TAGS,
            ),
        ),
        _TAGS,
    )

    def __repr__(self) -> str:
        return "<ChangePasswords>"

    def prepare(self, versions: object) -> ChangePasswords:
        """Itself: there is one version."""
        return self


class CreatedRights(Response):  # type: ignore[misc]
    API_KEY, API_VERSION = 30, 3
    SCHEMA = Schema(("throttle_time_ms", Int32), ("results", CompactArray(*_OUTCOME)), _TAGS)


class CreateRights(RequestStruct):  # type: ignore[misc]
    API_KEY, API_VERSION, FLEXIBLE_VERSION, RESPONSE_TYPE = 30, 3, True, CreatedRights
    SCHEMA = Schema(
        (
            "creations",
            CompactArray(
                ("resource_type", Int8),
                ("resource_name", CompactString()),
                ("pattern_type", Int8),
                ("principal", CompactString()),
                ("host", CompactString()),
                ("operation", Int8),
                ("permission_type", Int8),
                _TAGS,
            ),
        ),
        _TAGS,
    )

    def prepare(self, versions: object) -> CreateRights:
        """Itself: every broker that Baton supports has this version."""
        return self


async def set_password(cluster: Cluster, user: str, password: str, mechanism: str = "SCRAM-SHA-512") -> None:
    """Makes the user, or changes its password; connections that are open stay. Raises KafkaUnavailable."""
    number, name = _HASHES[mechanism]
    salt = secrets.token_bytes(32)
    salted = hashlib.pbkdf2_hmac(name, password.encode(), salt, ITERATIONS)
    row: Any = (user, number, ITERATIONS, salt, salted, {})
    _check(await cluster.ask_any(ChangePasswords([], [row], {})), f"the password of {user!r}")


async def grant(cluster: Cluster, user: str, rights: Iterable[Right]) -> None:
    """Adds these rights to those of the user, from any host. Raises KafkaUnavailable."""
    rows: list[Any] = [
        (
            _RESOURCES[right.resource],
            right.name,
            _PATTERNS[right.pattern],
            f"User:{user}",
            "*",
            _OPERATIONS[operation],
            _ALLOW,
            {},
        )
        for right in rights
        for operation in right.operations
    ]
    _check(await cluster.ask_any(CreateRights(rows, {})), f"the rights of {user!r}")


def _check(response: Any, what: str) -> None:
    for row in response.results:
        error, message, _ = row[-3:]
        if error:
            raise KafkaUnavailable(f"{what} cannot be set", cause=message or for_code(error).__name__)
