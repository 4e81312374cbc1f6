"""The address that a service publishes in ZooKeeper."""

from __future__ import annotations

import socket

import pytest

from shared.service.service_settings import ServiceSettings
from shared.service.settings import load


@pytest.mark.parametrize(
    ("environment", "address"),
    [
        ({"BATON_HOST": "127.0.0.1", "BATON_PORT": "8010"}, "http://127.0.0.1:8010"),
        ({"BATON_HOST": "::1", "BATON_PORT": "8010"}, "http://[::1]:8010"),
        ({"BATON_HOST": "0.0.0.0", "BATON_PORT": "8010"}, f"http://{socket.gethostname()}:8010"),
        ({"BATON_HOST": "::", "BATON_PORT": "8010"}, f"http://{socket.gethostname()}:8010"),
        ({"BATON_HOST": "0.0.0.0", "BATON_ADVERTISE": "https://baton.example/"}, "https://baton.example"),
    ],
)
def test_the_published_address_is_reachable(environment: dict[str, str], address: str) -> None:
    """A service on all interfaces publishes the machine's name, unless it advertises a URL."""
    settings = load(ServiceSettings, environment)

    assert settings.address == address
