"""The part of a broker's configuration that makes it demand TLS, a principal and rights of every client.

Clients enter by one of two listeners: SASL over TLS at the broker's port, and a client certificate at
`certificate_port`. The broker itself and its controller use certificates. Nobody may do anything without an
ACL but the `superusers`, of whom the first is the broker. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

BROKER = "broker"
"""The name in the broker's certificate, and so its principal."""
_LISTENER = "listener.name.sasl_ssl"
_MODULES = "org.apache.kafka.common.security"


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaLocks:
    """`keystore`: the broker's key and certificate in one PEM file; `trust`: the authority of its clients.

    `plain_users`: passwords by name, for PLAIN. Users of SCRAM are made on the running broker.
    `token_keys`: a JWKS file with the keys that sign tokens, for OAUTHBEARER. `session_ms`: after this time a
    connection must have been renewed; 0: never.
    """

    keystore: Path
    trust: Path
    certificate_port: int
    superusers: tuple[str, ...] = (BROKER,)
    plain_users: Mapping[str, str] = field(default_factory=dict, repr=False)
    token_keys: Path | None = None
    session_ms: int = 0


def lock_settings(locks: KafkaLocks, host: str, port: int, controller_port: int) -> dict[str, object]:
    """The settings of `server.properties` that come on top of an open broker's, or replace them."""
    listeners = f"SASL_SSL://{host}:{port},SSL://{host}:{locks.certificate_port},CONTROLLER://{host}:{controller_port}"
    return {
        "listeners": listeners,
        "advertised.listeners": listeners,
        "listener.security.protocol.map": "SASL_SSL:SASL_SSL,SSL:SSL,CONTROLLER:SSL",
        "inter.broker.listener.name": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": locks.keystore,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": locks.trust,
        "listener.name.ssl.ssl.client.auth": "required",
        "listener.name.controller.ssl.client.auth": "required",
        # CN=name → User:name
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/,DEFAULT",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": ";".join(f"User:{name}" for name in locks.superusers),
        "allow.everyone.if.no.acl.found": "false",
        "connections.max.reauth.ms": locks.session_ms,
        **_mechanisms(locks),
    }


def java_properties(locks: KafkaLocks | None) -> list[str]:
    """What the broker's JVM must know: the one file from which it may read the keys of tokens."""
    if locks is None or locks.token_keys is None:
        return []
    return [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={locks.token_keys.as_uri()}"]


def _mechanisms(locks: KafkaLocks) -> dict[str, object]:
    modules = {
        "SCRAM-SHA-256": f"{_MODULES}.scram.ScramLoginModule required;",
        "SCRAM-SHA-512": f"{_MODULES}.scram.ScramLoginModule required;",
    }
    if locks.plain_users:
        users = "".join(f" user_{name}={_quoted(password)}" for name, password in locks.plain_users.items())
        modules["PLAIN"] = f"{_MODULES}.plain.PlainLoginModule required{users};"
    settings: dict[str, object] = {}
    if locks.token_keys is not None:
        modules["OAUTHBEARER"] = f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required;"
        validator = f"{_MODULES}.oauthbearer.OAuthBearerValidatorCallbackHandler"
        settings[f"{_LISTENER}.oauthbearer.sasl.server.callback.handler.class"] = validator
        settings["sasl.oauthbearer.jwks.endpoint.url"] = locks.token_keys.as_uri()
    settings["sasl.enabled.mechanisms"] = ",".join(modules)
    for mechanism, module in modules.items():
        settings[f"{_LISTENER}.{mechanism.lower()}.sasl.jaas.config"] = module
    return settings


def _quoted(text: str) -> str:
    # once for the login module's syntax, once for the properties file's
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'.replace("\\", "\\\\")
