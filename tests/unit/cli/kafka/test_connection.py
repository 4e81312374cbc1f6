"""How a command says that it cannot talk to Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.kafka.connection import connected
from shared.errors import KafkaDenied, KafkaUnavailable
from shared.kafka.connect.access import KafkaAccess
from tests.servers import free_port


async def test_a_kafka_that_is_away_is_named() -> None:
    """The address may be what is wrong."""
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(KafkaUnavailable, match=f"Kafka at {address} does not answer"):
        async with connected(address):
            pass


async def test_a_client_that_is_not_let_in_hears_why(tmp_path: Path) -> None:
    """Kafka is there, so the sentence is another."""
    password = tmp_path / "password"
    password.touch()
    access = KafkaAccess(
        bootstrap="127.0.0.1:9",
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        user="u",
        password_file=str(password),
    )
    with pytest.raises(KafkaDenied, match="the secret for Kafka cannot be read"):
        async with connected(access):
            pass
