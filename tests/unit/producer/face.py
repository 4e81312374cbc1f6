"""The producer's HTTP face in process: the real connection, door and app, on sinks in memory."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx

from services.producer.app import create_face
from services.producer.http.access.keys import WriteKeys
from services.producer.http.metrics import ProducerMetrics
from services.producer.settings import ProducerSettings
from shared.model.routing import StreamTable, initial_table
from tests.fakes.http import FaceTransport
from tests.fakes.rejects import InMemoryRejects
from tests.fakes.sink import InMemoryFragmentSink

if sys.version_info >= (3, 14):
    from compression import zstd as zstd
else:
    from backports import zstd as zstd

TABLE = initial_table(24)
JSON = {"content-type": "application/json"}
NDJSON = {"content-type": "application/x-ndjson"}


class Producer:
    """A producer with these keys, sink and settings, and a client of it."""

    def __init__(
        self,
        keys: WriteKeys | None = None,
        sink: InMemoryFragmentSink | None = None,
        rejects: InMemoryRejects | None = None,
        **settings: Any,
    ) -> None:
        self.sink = sink or InMemoryFragmentSink(TABLE.count)
        self.rejects = rejects or InMemoryRejects(max_waiting_bytes=100_000)
        self.table: StreamTable | None = TABLE
        self.complaints: list[str] = []
        self.cluster_id: str | None = None
        self.metrics = ProducerMetrics()
        self.face = create_face(
            settings=ProducerSettings(**{"hosts": "producer,service,testserver"} | settings),
            sink=self.sink,
            rejects=self.rejects,
            table=lambda: self.table,
            table_json=lambda: self.table.encode() if self.table else b"",
            complaints=lambda: self.complaints,
            metrics=self.metrics,
            cluster_id=lambda: self.cluster_id,
            keys=keys,
        )
        self.door = self.face.door
        self.client = httpx.AsyncClient(transport=FaceTransport(self.face), base_url="http://producer")

    async def post(
        self, body: bytes | AsyncIterator[bytes], headers: Mapping[str, str] = JSON
    ) -> httpx.Response:
        """The answer to a POST of fragments."""
        return await self.client.post("/fragments", content=body, headers=headers)

    @property
    def stored(self) -> list[bytes]:
        """The values of all stored records, stream by stream."""
        return [value for log in self.sink.logs for _, value in log]

    def metric(self, name: str, **labels: str) -> float | None:
        """A sample as `/metrics` shows it."""
        return self.metrics.registry.get_sample_value(name, labels)


def assert_problem(answer: httpx.Response, status: int, kind: str) -> dict[str, Any]:
    """The answer is a problem document of RFC 9457 with this status and type; returns its members."""
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = answer.json()
    assert body["type"] == f"urn:baton:{kind}"
    assert body["status"] == status
    assert body["title"]
    assert body["detail"]
    return body
