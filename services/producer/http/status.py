"""`GET /status`: what a producer has counted, for control, which computes rates by reason from it.

The counts are those of `/metrics`. Private, like `/metrics`.
"""

from __future__ import annotations

import time

import msgspec
from fastapi import FastAPI, Response

from services.producer.http.metrics import ProducerMetrics
from services.producer.http.openapi import STATUS_RESPONSES


class ProducerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What a producer has counted up to `at` (ms UTC); `id` is its id in ZooKeeper.

    `accepted`, `unstored`: fragments that Kafka did and did not acknowledge. `rejected`: fragments by reason,
    `refused`: requests by type of problem. The counts never fall while the producer runs.
    """

    id: str
    at: int
    accepted: int
    unstored: int
    rejected: dict[str, int]
    refused: dict[str, int]


def install_status(app: FastAPI, producer: str, metrics: ProducerMetrics) -> None:
    """Adds the route."""

    @app.get("/status", tags=["health"], summary="What was accepted and refused", responses=STATUS_RESPONSES)
    async def status() -> Response:
        found = ProducerStatus(
            id=producer,
            at=time.time_ns() // 1_000_000,
            accepted=metrics.stored,
            unstored=metrics.unstored,
            rejected=metrics.rejected,
            refused=metrics.refused,
        )
        return Response(msgspec.json.encode(found), media_type="application/json")
