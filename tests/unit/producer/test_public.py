"""What the public port of a producer with a private one serves."""

from __future__ import annotations

import httpx
import pytest

from services.producer.http.face import ProducerFace
from services.producer.http.public import PublicFace
from services.producer.settings import ProducerSettings
from shared.errors import SettingsInvalid
from shared.service.settings import load
from tests.fakes.http import FaceTransport
from tests.unit.producer.face import JSON, Producer, assert_problem

PRIVATE = {"/metrics", "/docs", "/docs/swagger-ui.css", "/openapi.json", "/status", "/try", "/try.js"}


async def test_strangers_find_no_metrics_documents_or_test_page() -> None:
    """Every route of the app is public or private; a private one does not exist on the public port."""
    producer = Producer()
    face = ProducerFace(producer.door, PublicFace(producer.face.app))
    public = httpx.AsyncClient(transport=FaceTransport(face), base_url="http://producer")
    document = (await producer.client.get("/openapi.json")).json()
    readable = {path for path, operations in document["paths"].items() if "get" in operations} | PRIVATE

    found = {path: await public.get(path) for path in readable}
    posted = await public.post("/fragments", content=b'{"key":"a"}', headers=JSON)

    for path in PRIVATE:
        assert_problem(found[path], 404, "not-found")
        assert (await producer.client.get(path)).status_code == 200
    assert {path for path, answer in found.items() if answer.status_code == 200} == readable - PRIVATE
    assert {"/livez", "/readyz", "/agent.js"} <= readable - PRIVATE
    assert posted.status_code == 200


@pytest.mark.parametrize(
    ("mapping", "listener"),
    [
        ({}, None),
        ({"BATON_PRIVATE_PORT": "9"}, ("127.0.0.1", 9)),
        ({"BATON_PRIVATE_PORT": "9", "BATON_HOST": "::"}, ("::", 9)),
        ({"BATON_PRIVATE_PORT": "9", "BATON_HOST": "::", "BATON_PRIVATE_HOST": "::1"}, ("::1", 9)),
    ],
)
def test_the_private_port_is_on_the_same_host_by_default(
    mapping: dict[str, str], listener: tuple[str, int] | None
) -> None:
    """Without a port everything is public."""
    assert load(ProducerSettings, mapping).private_listener == listener


def test_the_private_port_is_another_one() -> None:
    """Otherwise the producer could not listen."""
    with pytest.raises(SettingsInvalid, match="BATON_PRIVATE_PORT"):
        load(ProducerSettings, {"BATON_PORT": "9", "BATON_PRIVATE_PORT": "9"})
