"""The producer's connections over TLS: as without, except that nobody can close one half."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from cli.stack.secured.certificates import make_authority
from tests.unit.producer.wire import Stalled, request, serving

FRAGMENT = b'{"key":"visitor-1"}'
SENT = {
    "two in a row": (request(FRAGMENT) * 2, [200, 200]),
    "the last one": (request(FRAGMENT, "connection: close"), [200]),
    "another route": (b"GET /livez HTTP/1.1\r\nhost: producer\r\n\r\n", [200]),
    "not HTTP": (b"nonsense\r\n\r\n", [400]),
    "long headers": (request(FRAGMENT, "x: " + "y" * 40_000), [431]),
}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Any]:
    authority = make_authority(tmp_path)
    made = authority.issue("producer")
    return {
        "tls_certificate_file": str(made.certificate),
        "tls_key_file": str(made.key),
        "tls_ca_file": str(authority.trust),
    }


@pytest.mark.parametrize("name", SENT)
async def test_requests_are_answered_over_tls(name: str, files: dict[str, Any]) -> None:
    """Those that end a connection, too: the answer arrives before the end."""
    sent, statuses = SENT[name]
    async with serving(**files) as server, server.connection() as client:
        client.send(sent)
        answers = [await client.answer() for _ in statuses]

    assert [answer.status for answer in answers] == statuses
    assert len(server.stored) == sum(status == 200 for status in statuses) * (name != "another route")


async def test_a_client_that_ends_its_half_ends_the_connection(
    files: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """TLS has one end for both halves in Python; what it sent is stored, and nothing is logged."""
    sink = Stalled()
    with caplog.at_level(logging.WARNING):
        async with serving(sink=sink, **files) as server, server.connection() as client:
            client.send(request(FRAGMENT))
            await sink.waiting.wait()
            client.writer.close()
            rest = await client.rest()
            sink.release.set()

    assert (rest, server.stored) == (b"", [FRAGMENT])
    assert [record.message for record in caplog.records] == []
