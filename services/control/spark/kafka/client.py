"""What Kafka's Java client needs to be let in: the options of Spark's source, and of the admin client.

Certificates and passwords go into the options themselves, so that executors need no file. They appear in no
command line, plan or page of Spark: see `REDACTED`. A token's file must be there for every executor, because
Java reads it again when the token ends.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from shared.errors import KafkaDenied, KafkaUnavailable
from shared.kafka.connect.access import BY_TOKEN, Kafka, KafkaAccess, access_of
from shared.kafka.connect.cluster import Cluster
from shared.kafka.connect.security import find_secret, usable_secrets

logger = logging.getLogger(__name__)

_SECURITY = "org.apache.kafka.common.security"
_MODULES = {
    "PLAIN": f"{_SECURITY}.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{_SECURITY}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_SECURITY}.scram.ScramLoginModule",
    BY_TOKEN: f"{_SECURITY}.oauthbearer.OAuthBearerLoginModule",
}
_ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
"""Newer clients of Kafka read no token from anywhere else."""
REDACTED = {
    "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|jaas|keystore",
    "spark.sql.redaction.options.regex": "(?i)url|password|token|jaas|keystore",
    "spark.redaction.string.regex": '(?s)password="[^"]*"|-----BEGIN [A-Z ]*PRIVATE KEY.*?-----END',
}
"""Spark's settings that keep secrets out of its pages, plans and logs."""


def client_options(kafka: Kafka) -> dict[str, str]:
    """The client's options by Kafka's names. Raises KafkaDenied if a file cannot be read."""
    access = access_of(kafka)
    options = {"bootstrap.servers": access.bootstrap}
    if not access.is_given:
        return options
    options["security.protocol"] = access.security_protocol
    if access.ca_file:
        options |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": _text(access.ca_file)}
    if access.certificate_file:
        options |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": _text(access.certificate_file),
            "ssl.keystore.key": _text(access.key_file or access.certificate_file),
        }
    return options | _sasl_options(access)


def source_options(kafka: Kafka) -> dict[str, str]:
    """The same for a reader of Spark. Raises KafkaDenied."""
    return {f"kafka.{name}": value for name, value in client_options(kafka).items()}


def _sasl_options(access: KafkaAccess) -> dict[str, str]:
    if not access.has_sasl:
        return {}
    options = {"sasl.mechanism": access.sasl_mechanism}
    login = f"{_MODULES[access.sasl_mechanism]} required"
    if access.sasl_mechanism == BY_TOKEN:
        return options | {
            "sasl.jaas.config": f"{login};",
            "sasl.login.callback.handler.class": f"{_SECURITY}.oauthbearer.OAuthBearerLoginCallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": _token_url(access),
        }
    # Java takes one password, so the driver finds out which of two holds
    secrets = usable_secrets(access, access.secret_in(access.password_file))
    secret = secrets[0] if len(secrets) == 1 else asyncio.run(find_secret(access))
    user = f"username={_quoted(access.user)} password={_quoted(secret)}"
    return options | {"sasl.jaas.config": f"{login} {user};"}


async def check_access(kafka: Kafka) -> None:
    """Raises KafkaDenied if Kafka does not let the job in: Java would say so late, and at length."""
    try:
        async with Cluster(kafka) as cluster:
            await cluster.refresh()
    except KafkaDenied:
        raise
    except KafkaUnavailable as error:
        logger.warning("Kafka does not answer", extra={"why": error.detail})  # Java tries for longer


def java_properties(kafka: Kafka) -> dict[str, str]:
    """Properties that the JVMs of driver and executors need; nothing secret."""
    access = access_of(kafka)
    return {_ALLOWED_URLS: _token_url(access)} if access.sasl_mechanism == BY_TOKEN else {}


def _token_url(access: KafkaAccess) -> str:
    return Path(access.token_file).resolve().as_uri()


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _text(file: str) -> str:
    try:
        return Path(file).read_text()
    except OSError as error:
        raise KafkaDenied("a file for Kafka cannot be read", cause=f"{file}: {error}") from None
