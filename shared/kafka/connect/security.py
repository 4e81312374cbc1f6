"""Connects to a broker with all that it demands: TLS, a client certificate, a password or a token.

Every file is read again for each connection, so replaced secrets and certificates hold without a restart; one
that has become unusable changes nothing. A secret file may have two lines during a rotation: when the broker
refuses the first secret, the second is tried on a new connection. A channel replaces a connection before its
`lifetime_s` ends.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import math
import ssl
import time
from collections.abc import Iterator

from aiokafka.errors import KafkaConnectionError, KafkaError

from shared.errors import InvalidInput, KafkaDenied, KafkaUnavailable
from shared.kafka.connect.access import BY_TOKEN, KafkaAccess, addresses_of
from shared.kafka.connect.connection import Connection
from shared.kafka.connect.sasl import MechanismRefused, SecretRefused, authenticate
from shared.secret_file import SecretFile

_FIND_TIMEOUT_S = 10.0

logger = logging.getLogger(__name__)


class Gate:
    """A `Connect`: opens connections to the brokers of one Kafka."""

    def __init__(self, access: KafkaAccess) -> None:
        self._access = access
        self._file = access.secret_in(access.secret_file)
        self._context: ssl.SSLContext | None = None

    def __repr__(self) -> str:
        return f"<Gate of {self._access.bootstrap} by {self._access.security_protocol}>"

    async def __call__(self, host: str, port: int) -> Connection:
        """Raises KafkaDenied with the reason in words, and what aiokafka raises."""
        if not self._access.has_sasl:
            return await self._open(host, port)
        connection, _ = await self.identified(host, port)
        return connection

    async def identified(self, host: str, port: int) -> tuple[Connection, str]:
        """A connection with SASL, and the secret that was accepted. Raises the same."""
        access = self._access
        refusal = ""
        for number, secret in enumerate(usable_secrets(access, self._file), start=1):
            connection = await self._open(host, port)
            try:
                await self._authenticate(connection, secret)
            except SecretRefused as error:
                refusal = str(error)
                continue
            if number > 1:
                logger.warning(
                    "Kafka refused the first secret and accepted the next",
                    extra={"file": access.secret_file},
                )
            return connection, secret
        if access.sasl_mechanism == BY_TOKEN:
            raise KafkaDenied("Kafka refuses the token", cause=f"{access.token_file}: {refusal}")
        who = f"user {access.user!r}, {access.sasl_mechanism}, {access.password_file}"
        raise KafkaDenied("Kafka refuses the user or the password", cause=f"{who}: {refusal}")

    async def _authenticate(self, connection: Connection, secret: str) -> None:
        """Raises SecretRefused, and what `identified` raises; the connection is closed then."""
        access = self._access
        try:
            connection.lifetime_s = await authenticate(connection, access.sasl_mechanism, access.user, secret)
        except Exception as error:
            await connection.leave()
            if isinstance(error, MechanismRefused):
                what = f"Kafka does not accept {access.sasl_mechanism} here"
                raise KafkaDenied(what, cause=str(error)) from None
            if isinstance(error, ValueError | LookupError):
                raise KafkaDenied("the broker cannot prove who it is", cause=str(error)) from None
            raise
        except BaseException:  # a cancellation
            connection.close()
            raise

    async def _open(self, host: str, port: int) -> Connection:
        tls = self._tls() if self._access.is_encrypted else None
        try:
            return await Connection.open(host, port, tls)
        except (OSError, KafkaError) as error:
            if (fault := _tls_fault(error)) is not None:
                raise _denied(fault, self._access) from error
            if isinstance(error, ConnectionResetError) and self._access.is_encrypted:
                raise KafkaUnavailable(
                    "the broker breaks the connection off; it may not speak TLS", cause=f"{host}:{port}"
                ) from error
            # where nobody listens, the error is another one
            if isinstance(error, KafkaConnectionError) and not self._access.is_encrypted:
                raise KafkaUnavailable(
                    "the broker closes the connection; it may demand TLS", cause=f"{host}:{port}: {error}"
                ) from error
            raise

    def _tls(self) -> ssl.SSLContext:
        """By the files as they are now; if they have become unusable, as they were."""
        try:
            self._context = tls_context(self._access)
        except KafkaDenied as error:
            if self._context is None:
                raise
            logger.warning("certificates not loaded", extra={"why": error.detail})
        return self._context


async def find_secret(access: KafkaAccess) -> str:
    """Of the secrets in the file the one that Kafka accepts now. Raises KafkaUnavailable."""
    failure: Exception | None = None
    for host, port in addresses_of(access.bootstrap):
        try:
            async with asyncio.timeout(_FIND_TIMEOUT_S):
                connection, secret = await Gate(access).identified(host, port)
        except KafkaUnavailable:
            raise
        except (OSError, KafkaError) as error:
            failure = error
        else:
            await connection.leave()
            return secret
    raise KafkaUnavailable("Kafka cannot be reached", cause=f"{access.bootstrap}: {failure!r}")


def tls_context(access: KafkaAccess) -> ssl.SSLContext:
    """What TLS needs, from the files. Raises KafkaDenied if one is missing or is not what it should be."""
    try:
        context = ssl.create_default_context(cafile=access.ca_file or None)
    except (OSError, ValueError) as error:
        raise KafkaDenied(
            "the authority's certificate cannot be read", cause=f"{access.ca_file}: {error}"
        ) from None
    if access.certificate_file:
        try:
            context.load_cert_chain(access.certificate_file, access.key_file or None, password=_no_password)
        except (OSError, ValueError) as error:
            cause = f"{access.key_file or access.certificate_file}: {error}"
            raise KafkaDenied("the client's certificate or key cannot be read", cause=cause) from None
    return context


def usable_secrets(access: KafkaAccess, file: SecretFile) -> list[str]:
    """The passwords or tokens in the order in which to try them, without expired tokens.

    Raises KafkaDenied if none is left.
    """
    try:
        found = list(file.read())
    except InvalidInput as error:
        raise KafkaDenied("the secret for Kafka cannot be read", cause=error.detail) from None
    if access.sasl_mechanism == BY_TOKEN:
        now_s = time.time()
        found = [token for token in found if expiry_of(token) > now_s]
    if not found:
        raise KafkaDenied("the token for Kafka has expired", cause=access.token_file)
    return found


def expiry_of(token: str) -> float:
    """When the token ends, in seconds since the epoch; infinity if it does not say so.

    >>> expiry_of("e30." + base64.urlsafe_b64encode(b'{"exp": 12}').decode().rstrip("=") + ".")
    12.0
    """
    try:
        claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
        return float(claims["exp"])
    except (ValueError, LookupError, TypeError):
        return math.inf  # opaque: only the broker can say


def _no_password() -> str:
    # without this, OpenSSL would ask on the terminal
    raise ValueError("the key is encrypted; Baton reads keys without a password")


def _tls_fault(error: BaseException) -> ssl.SSLError | None:
    """The failure of TLS that led to this error, if there is one."""
    return next((one for one in _causes(error) if isinstance(one, ssl.SSLError)), None)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _denied(fault: ssl.SSLError, access: KafkaAccess) -> KafkaDenied:
    if isinstance(fault, ssl.SSLCertVerificationError):
        trusted = access.ca_file or "the system's authorities"
        return KafkaDenied(
            "the broker's certificate is not trusted", cause=f"{fault.verify_message} ({trusted})"
        )
    reason = fault.reason or str(fault)
    if "ALERT" in reason:  # what the broker says of ours
        return KafkaDenied("the broker rejects the client's certificate, or that it has none", cause=reason)
    return KafkaDenied("the broker does not speak TLS as expected", cause=reason)
