"""What stands in ZooKeeper as a service's address, from where it listens."""

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
def test_others_are_told_an_address_at_which_they_can_reach_the_service(
    environment: dict[str, str], address: str
) -> None:
    """All interfaces are no address: then the machine's name stands for them, unless one is advertised."""
    settings = load(ServiceSettings, environment)

    assert settings.address == address
