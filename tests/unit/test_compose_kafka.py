"""Kafka's container: its listener for clients on the host, and a health check that starts no JVM."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import threading
from collections.abc import Iterator

import pytest

from tests.unit.test_compose import COMPOSE, environment_of

API_VERSIONS = b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\xff\xff"
"""Kafka's smallest request: its size, ApiVersions, version 0, correlation id 1, no client id."""


def test_clients_on_the_host_reach_kafka() -> None:
    """A listener of their own, whose advertised address is the one that is published, on loopback alone.

    It is the default of `--kafka`, so `baton rejected` needs no option.
    """
    declared = environment_of("kafka")
    listeners = dict(one.split("://:") for one in declared["KAFKA_LISTENERS"].split(","))
    advertised = dict(one.split("://") for one in declared["KAFKA_ADVERTISED_LISTENERS"].split(","))
    protocols = dict(one.split(":") for one in declared["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"].split(","))
    (published,) = COMPOSE["services"]["kafka"]["ports"]

    assert published == f"{advertised['HOST']}:{listeners['HOST']}"
    assert advertised == {"PLAINTEXT": "kafka:9092", "HOST": "127.0.0.1:9092"}
    assert protocols.keys() == listeners.keys() == {*advertised, "CONTROLLER"}
    assert len(set(listeners.values())) == 3


@contextlib.contextmanager
def broker(answer: bytes | None) -> Iterator[tuple[int, list[bytes]]]:
    """The port of a server that gives this answer to one request, None for silence; and what it received."""
    received: list[bytes] = []

    def serve() -> None:
        with contextlib.suppress(OSError):
            connection, _ = listener.accept()
            with connection:
                received.append(connection.recv(len(API_VERSIONS), socket.MSG_WAITALL))
                if answer is None:
                    # until the client gives up
                    connection.recv(100)
                else:
                    connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1], received
        finally:
            listener.shutdown(socket.SHUT_RDWR)
    thread.join(30)


@pytest.mark.parametrize(
    ("answer", "is_healthy"), [(b"\0\0\0\x0a\0\0\0\1", True), (b"", False), (None, False)]
)
def test_kafkas_health_check_is_one_small_request(answer: bytes | None, is_healthy: bool) -> None:
    """No JVM every few seconds: bash asks the broker for its versions; a broker that hangs is not healthy."""
    with broker(answer) as (port, received):
        assert check_health("kafka", port) is is_healthy

    assert received == [API_VERSIONS]


def test_a_broker_that_does_not_listen_is_not_healthy() -> None:
    """Kafka opens its port once it serves requests."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

    assert not check_health("kafka", port)


def check_health(service: str, port: int) -> bool:
    """Runs the container's health check here, on another port."""
    declared = COMPOSE["services"][service]["healthcheck"]
    kind, *argv = (word.replace("$$", "$").replace("/9092", f"/{port}") for word in declared["test"])
    assert kind == "CMD"
    assert argv[0] == "bash"
    answer = subprocess.run(argv, capture_output=True, check=False, timeout=60)
    return answer.returncode == 0
