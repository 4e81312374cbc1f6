"""The producer's HTTP face: `create_face` builds it from its parts.

The door answers `POST /fragments`, a FastAPI app the rest: markers, the stream table, health, and the agent's
files. Used by `__main__.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import FastAPI, Response, params
from pydantic import BaseModel, BeforeValidator, Field

from services.producer.http.access.keys import WriteKeys
from services.producer.http.access.origins import Origins, parse_origins
from services.producer.http.agent import install_agent
from services.producer.http.body import SmallBodies
from services.producer.http.door import Door
from services.producer.http.face import ProducerFace
from services.producer.http.gate import MARKERS, Gate, GatedApp
from services.producer.http.metrics import ProducerMetrics
from services.producer.http.openapi import MARKERS_RESPONSES, TABLE_RESPONSES, WRITE_KEYS, document_fragments
from services.producer.http.status import install_status
from services.producer.ports import FragmentSink, Rejects
from services.producer.settings import ProducerSettings
from shared.errors import ZooKeeperUnavailable
from shared.model.fragments import MAX_TIME_MS, encode_marker
from shared.model.routing import StreamTable
from shared.service.api_docs import NO_DOCS, install_docs
from shared.service.guard import Guard, Guarded
from shared.service.http import HeadAnswers, install_health, install_problems

OPEN = frozenset({"/agent.js", "/agent.source.js", "/livez", "/readyz"})
"""What everybody may load under any name of the producer; the gate alone decides about fragments."""


def _as_integer(value: object) -> object:
    """The value with 5.0 as 5: for JSON schema both are integers."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


class MarkerRequest(BaseModel):
    """All event time up to `time` (ms since the epoch) has been sent."""

    time: Annotated[int, Field(strict=True, ge=0, le=MAX_TIME_MS), BeforeValidator(_as_integer)]


class MarkerOffset(BaseModel):
    """The offset of a stream's marker."""

    stream: int
    offset: int


class MarkersWritten(BaseModel):
    """One acknowledged marker per stream."""

    markers: list[MarkerOffset]


def create_face(
    *,
    settings: ProducerSettings,
    sink: FragmentSink,
    rejects: Rejects,
    table: Callable[[], StreamTable | None],
    table_json: Callable[[], bytes],
    complaints: Callable[[], list[str]],
    metrics: ProducerMetrics,
    cluster_id: Callable[[], str | None] = lambda: None,
    keys: WriteKeys | None = None,
) -> ProducerFace:
    """What the producer answers; without `keys` anybody may write.

    `table` and `table_json` return the current stream table (None and b"" while there is none), `cluster_id`
    that of Kafka (None while it is unknown).
    """
    keys = keys or WriteKeys()
    metrics.keys = keys.use
    app = FastAPI(
        title="Baton producer",
        description="Fragments in over HTTP, into Kafka.",
        version="1",
        redirect_slashes=False,  # a redirect repeats the query, and fails if that is not UTF-8
        **NO_DOCS,
    )
    app.add_middleware(HeadAnswers)
    gate = Gate(Origins(parse_origins(settings.allowed_origins)), keys, metrics)
    door = Door(
        gate=gate,
        sink=sink,
        rejects=rejects,
        table=table,
        limits=settings.limits,
        max_inflight_bytes=settings.max_inflight_bytes,
        metrics=metrics,
    )
    install_problems(app)
    install_health(
        app,
        lambda: [c for c in (door.complaint(), keys.complaint(), *complaints()) if c],
        metrics.registry,
        remarks=lambda: [*keys.remarks(), *sink.remarks()],
    )
    _install_markers(app, sink, table, WRITE_KEYS if keys.is_needed else [])
    _install_table(app, table_json, cluster_id, settings.namespace)
    install_status(app, settings.id, metrics)
    install_agent(app, kafka=settings.kafka, namespace=settings.namespace)
    install_docs(app)
    document_fragments(app, needs_key=keys.is_needed)
    guard = Guard([*settings.own_hosts, settings.private_host])
    # gate and guard outside: a request that may not be made is rejected before its body is read
    return ProducerFace(door, GatedApp(Guarded(SmallBodies(app), guard, OPEN), gate))


def _install_markers(
    app: FastAPI,
    sink: FragmentSink,
    table: Callable[[], StreamTable | None],
    security: list[params.Depends],
) -> None:
    @app.post(
        MARKERS,
        tags=["fragments"],
        summary="Write a marker to every stream",
        responses=MARKERS_RESPONSES,
        dependencies=security,
    )
    async def markers(marker: MarkerRequest) -> MarkersWritten:
        if table() is None:
            raise ZooKeeperUnavailable("there is no stream table yet")
        offsets = await sink.send_to_all(encode_marker(marker.time))
        return MarkersWritten(
            markers=[MarkerOffset(stream=stream, offset=offset) for stream, offset in enumerate(offsets)]
        )


def _install_table(
    app: FastAPI, table_json: Callable[[], bytes], cluster_id: Callable[[], str | None], namespace: str
) -> None:
    @app.get("/table", tags=["streams"], summary="The stream table, as stored", responses=TABLE_RESPONSES)
    async def stream_table() -> Response:
        if not table_json():
            raise ZooKeeperUnavailable("there is no stream table yet")
        # an address may lead to another Baton tomorrow: this names the one whose table it is
        known = cluster_id()
        headers = {"baton-cluster": f"{known}/{namespace}"} if known else {}
        return Response(table_json(), media_type="application/json", headers=headers)
