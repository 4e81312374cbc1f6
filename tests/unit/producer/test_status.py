"""`GET /status` of a producer: what it has accepted and refused, for control."""

from __future__ import annotations

import pytest

from services.producer.settings import ProducerSettings
from shared.service.settings import load
from tests.unit.producer.face import Producer


async def test_a_producer_reports_what_it_accepted_and_why_it_refused() -> None:
    """Fragments by reason, requests by type of problem, under the id that it has in ZooKeeper."""
    producer = Producer(producer="p", max_request_bytes=64 * 1024)
    await producer.post(b'[{"key":"a"},{"key":"b"},{"key":""},{"no":"key"}]')
    await producer.post(b'{"key":"a"}', {"content-type": "application/xml"})

    status = (await producer.client.get("/status")).json()

    assert (status["id"], status["accepted"], status["unstored"]) == ("p", 2, 0)
    assert status["rejected"] == {"key": 1, "invalid": 1}
    assert status["refused"] == {"unsupported-type": 1}


@pytest.mark.parametrize(
    ("mapping", "address"),
    [
        ({}, ""),
        ({"BATON_PRIVATE_PORT": "9"}, "http://127.0.0.1:9"),
        ({"BATON_PRIVATE_PORT": "9", "BATON_ADVERTISE": "https://in.example"}, "http://in.example:9"),
        ({"BATON_PRIVATE_PORT": "9", "BATON_PRIVATE_HOST": "::1"}, "http://[::1]:9"),
        (
            {"BATON_PRIVATE_PORT": "9", "BATON_PRIVATE_HOST": "::", "BATON_ADVERTISE": "http://p:1"},
            "http://p:9",
        ),
    ],
)
def test_control_finds_the_private_port(mapping: dict[str, str], address: str) -> None:
    """It has its own address or the producer's; without one, control asks BATON_PORT."""
    assert load(ProducerSettings, mapping).private_address == address
