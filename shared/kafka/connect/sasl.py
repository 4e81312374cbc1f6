"""Shows a broker who this client is (SASL, KIP-152), and learns for how long that holds (KIP-368).

aiokafka could do the first, but it passes the secret to its debug log, ignores the session's lifetime, and
takes a rejected token for an accepted one. So only its arithmetic of SCRAM is used. Used by `security.py`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable
from io import BytesIO
from typing import Any, ClassVar, Protocol

from aiokafka.conn import ScramAuthenticator
from aiokafka.errors import for_code
from aiokafka.protocol.admin import SaslHandShakeRequest

from shared.kafka.connect.access import BY_TOKEN
from shared.kafka.wire.flexible import NO_TAGS, Cursor, FlexibleRequest, compact_size

_END_OF_REFUSAL = b"\x01"
"""What a client answers to the reasons that OAUTHBEARER's server gives (RFC 7628, section 3.2.3)."""


class SecretRefused(Exception):
    """The broker does not accept this user, password or token; the text is the broker's."""


class MechanismRefused(Exception):
    """The listener has another security protocol or other mechanisms."""


class Asked(Protocol):
    """What authenticating needs of a connection."""

    def send(self, request: Any) -> Awaitable[Any]:
        """The answer to the request."""


class SaslAuthenticateResponse:
    """The broker's word: an error, or bytes to go on with, and the session's lifetime (ms; 0: no end)."""

    def __init__(self, error: int, reason: str, token: bytes, lifetime_ms: int) -> None:
        self.error = error
        self.reason = reason
        self.token = token
        self.lifetime_ms = lifetime_ms

    def __repr__(self) -> str:
        return f"<SaslAuthenticateResponse, error {self.error}, {self.lifetime_ms} ms>"

    @classmethod
    def decode(cls, data: BytesIO) -> SaslAuthenticateResponse:
        """Reads version 2."""
        cursor = Cursor(memoryview(data.read()))
        error, reason, token = cursor.int16(), cursor.compact_bytes(), cursor.compact_bytes()
        return cls(error, reason.decode(errors="replace"), token, cursor.int64())


class SaslAuthenticateRequest(FlexibleRequest):
    """One step; its bytes are secret and never in a log."""

    API_KEY = 36
    API_VERSION = 2
    RESPONSE_TYPE: ClassVar[Any] = SaslAuthenticateResponse

    def __init__(self, token: bytes) -> None:
        self._token = token

    def __repr__(self) -> str:
        return "<SaslAuthenticateRequest>"

    def encode(self) -> bytes:
        """Version 2."""
        return compact_size(len(self._token)) + self._token + NO_TAGS


async def authenticate(connection: Asked, mechanism: str, username: str, secret: str) -> float:
    """Authenticates on a fresh connection. Returns for how many seconds the broker accepts requests on it.

    Raises SecretRefused, MechanismRefused, and what aiokafka raises; the connection is of no use then.
    """
    shaken = await connection.send(SaslHandShakeRequest(mechanism))
    if shaken.error_code:
        if not shaken.enabled_mechanisms:
            raise MechanismRefused("the listener expects no SASL")
        raise MechanismRefused(
            f"the listener accepts {', '.join(shaken.enabled_mechanisms)}, not {mechanism}"
        )
    if mechanism == BY_TOKEN:
        done = await _step(connection, f"n,,\x01auth=Bearer {secret}\x01\x01".encode())
        if done.token:  # the reasons; the error comes with the next answer
            done = await _step(connection, _END_OF_REFUSAL)
            raise SecretRefused("the token is not valid")
    elif mechanism == "PLAIN":
        done = await _step(connection, "\0".join(("", username, secret)).encode())
    else:
        done = await _prove(connection, mechanism, username, secret)
    return done.lifetime_ms / 1000 if done.lifetime_ms > 0 else math.inf


async def _prove(connection: Asked, mechanism: str, username: str, secret: str) -> SaslAuthenticateResponse:
    """Proves to know the password without sending it, and that the broker knows it too (RFC 5802)."""
    scram = ScramAuthenticator(
        loop=asyncio.get_running_loop(),
        sasl_plain_password=secret,
        sasl_plain_username=username,
        sasl_mechanism=mechanism,
    )
    done, said = None, None
    # each step computes in another thread: thousands of hashes would hold up the loop
    while (step := await scram.step(said)) is not None:
        done = await _step(connection, step[0])
        said = done.token
    assert done is not None
    return done


async def _step(connection: Asked, token: bytes) -> SaslAuthenticateResponse:
    answer: SaslAuthenticateResponse = await connection.send(SaslAuthenticateRequest(token))
    if answer.error:
        raise SecretRefused(answer.reason or for_code(answer.error).__name__)
    return answer
