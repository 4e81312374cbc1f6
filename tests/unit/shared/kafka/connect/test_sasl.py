"""The steps of SASL: what a broker's answers mean, also those of one that is not what it claims to be."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import math
from collections.abc import Callable, Sequence
from io import BytesIO
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.protocol.admin import SaslHandShakeRequest

from shared.kafka.connect.sasl import (
    MechanismRefused,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SecretRefused,
    authenticate,
)
from shared.kafka.wire.flexible import Cursor, compact_size

SALT, ROUNDS = b"salt" * 4, 4096


def answer(token: bytes = b"", *, error: int = 0, reason: str = "", lifetime_ms: int = 0) -> Any:
    """In the bytes of version 2."""
    parts = [error.to_bytes(2, "big"), compact_size(len(reason)), reason.encode(), compact_size(len(token))]
    body = b"".join([*parts, token, lifetime_ms.to_bytes(8, "big"), b"\0"])
    return SaslAuthenticateResponse.decode(BytesIO(body))


class Broker:
    """A connection whose other end answers each step by `step`; `steps` are those that it got."""

    def __init__(self, step: Callable[[bytes], Any], error: int = 0, mechanisms: Sequence[str] = ()) -> None:
        self.steps: list[bytes] = []
        self._step = step
        self._shaken = SimpleNamespace(error_code=error, enabled_mechanisms=mechanisms)

    async def send(self, request: Any) -> Any:
        if isinstance(request, SaslHandShakeRequest):
            return self._shaken
        assert isinstance(request, SaslAuthenticateRequest)
        self.steps.append(Cursor(memoryview(request.encode())).compact_bytes())
        return self._step(self.steps[-1])


def knowing(password: str) -> Callable[[bytes], Any]:
    """The server's side of SCRAM-SHA-256 (RFC 5802) for a broker that knows this password."""
    said: list[str] = []

    def step(token: bytes) -> Any:
        text = token.decode()
        if not said:
            bare = text.removeprefix("n,,")
            nonce = dict(part.split("=", 1) for part in bare.split(","))["r"]
            said.extend((bare, f"r={nonce}more,s={base64.b64encode(SALT).decode()},i={ROUNDS}"))
            return answer(said[1].encode())
        without_proof = text.rpartition(",p=")[0]
        salted = hashlib.pbkdf2_hmac("sha256", password.encode(), SALT, ROUNDS)
        key = hmac.digest(salted, b"Server Key", "sha256")
        signature = hmac.digest(key, ",".join((*said, without_proof)).encode(), "sha256")
        return answer(b"v=" + base64.b64encode(signature), lifetime_ms=7_000)

    return step


def login(broker: Broker, mechanism: str = "SCRAM-SHA-256") -> float:
    return asyncio.run(authenticate(broker, mechanism, "member", "secret"))


def test_a_broker_that_knows_the_password_is_believed() -> None:
    """It never sees the password, and says how long the session lasts."""
    broker = Broker(knowing("secret"))

    assert login(broker) == 7.0
    assert not any(b"secret" in step for step in broker.steps)


def test_a_broker_that_does_not_know_the_password_is_not_believed() -> None:
    """Whoever has its address could collect everything that we send."""
    with pytest.raises(ValueError, match="wrong signature"):
        login(Broker(knowing("guess")))


@pytest.mark.parametrize(
    ("mechanism", "step"),
    [("PLAIN", b"\0member\0secret"), ("OAUTHBEARER", b"n,,\x01auth=Bearer secret\x01\x01")],
)
def test_a_secret_goes_in_one_step(mechanism: str, step: bytes) -> None:
    """By RFC 4616 and RFC 7628; a lifetime of 0 has no end."""
    broker = Broker(lambda _: answer())

    assert login(broker, mechanism) == math.inf
    assert broker.steps == [step]


def test_the_reasons_against_a_token_are_no_consent() -> None:
    """The broker gives them without an error, which comes after the client has answered."""
    answers = iter([answer(b'{"status":"invalid_token"}'), answer(error=58, reason="expired")])
    broker = Broker(lambda _: next(answers))

    with pytest.raises(SecretRefused, match="expired"):
        login(broker, "OAUTHBEARER")
    assert broker.steps[1] == b"\x01"


@pytest.mark.parametrize(
    ("error", "mechanisms", "words"),
    [(33, ["SCRAM-SHA-512"], "accepts SCRAM-SHA-512, not PLAIN"), (34, [], "expects no SASL")],
)
def test_a_listener_without_the_mechanism_names_those_that_it_has(
    error: int, mechanisms: list[str], words: str
) -> None:
    """So that the setting can be mended."""
    with pytest.raises(MechanismRefused, match=words):
        login(Broker(lambda _: None, error, mechanisms), "PLAIN")
