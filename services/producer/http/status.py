"""`GET /status`: what a producer has counted, for control, which computes rates by reason from it.

The counts are those of `/metrics`. Workers share a port, so any of them answers for all; each worker's counts
carry their own time. Private, like `/metrics`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import msgspec
from fastapi import FastAPI, Response
from prometheus_client import Metric

from services.producer.http.openapi import STATUS_RESPONSES


class ProducerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What one producer process has counted up to `at` (ms UTC); `id` is its id in ZooKeeper.

    `accepted`, `unstored`: fragments that Kafka did and did not acknowledge. `rejected`: fragments by reason,
    `refused`: requests by type of problem. The counts never fall while the producer runs.
    """

    id: str
    at: int
    accepted: int
    unstored: int
    rejected: dict[str, int]
    refused: dict[str, int]


def status_of(producer: str, at_ms: int, metrics: Iterable[Metric]) -> ProducerStatus:
    """The status that follows from the metrics of one process."""
    counts: dict[str, Counter[str]] = {}
    for metric in metrics:
        for sample in metric.samples:
            label = next(iter(sample.labels.values()), "")
            counts.setdefault(sample.name, Counter())[label] += int(sample.value)

    def labelled(name: str) -> dict[str, int]:
        return dict(counts.get(f"{name}_total", {}))

    return ProducerStatus(
        id=producer,
        at=at_ms,
        accepted=sum(labelled("baton_fragments_stored").values()),
        unstored=sum(labelled("baton_fragments_unstored").values()),
        rejected=labelled("baton_fragments_rejected"),
        refused=labelled("baton_requests_refused"),
    )


def install_status(app: FastAPI, statuses: Callable[[], list[ProducerStatus]]) -> None:
    """Adds the route."""

    @app.get("/status", tags=["health"], summary="What was accepted and refused", responses=STATUS_RESPONSES)
    async def status() -> Response:
        return Response(msgspec.json.encode({"producers": statuses()}), media_type="application/json")
