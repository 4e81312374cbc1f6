"""The producer's HTTP face: `create_app` makes the ASGI app from its parts.

`POST /fragments` is answered by the Door before FastAPI sees it; its route here is what documents it
(and answers other methods with 405).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import FastAPI, Request, Response, params
from pydantic import BaseModel, Field

from services.producer.http.agent import install_agent
from services.producer.http.body import SmallBodies
from services.producer.http.door import PATH, Door
from services.producer.http.gate import Gate, GatedApp
from services.producer.http.keys import WriteKeys
from services.producer.http.metrics import ProducerMetrics
from services.producer.http.openapi import (
    FRAGMENTS_REQUEST,
    FRAGMENTS_RESPONSES,
    MARKERS_RESPONSES,
    TABLE_RESPONSES,
    WRITE_KEYS,
)
from services.producer.http.origins import Origins, parse_origins
from services.producer.ports import FragmentSink, Rejects
from services.producer.settings import ProducerSettings
from shared.errors import ZooKeeperUnavailable
from shared.model.fragments import MAX_TIME_MS, encode_marker
from shared.model.routing import StreamTable
from shared.service.http import install_health, install_problems


class MarkerRequest(BaseModel):
    """All event time up to `time` (ms since the epoch) has been sent."""

    time: Annotated[int, Field(strict=True, ge=0, le=MAX_TIME_MS)]


class MarkerOffset(BaseModel):
    """Where a stream's marker stands."""

    stream: int
    offset: int


class MarkersWritten(BaseModel):
    """One marker per stream, acknowledged."""

    markers: list[MarkerOffset]


def create_app(
    *,
    settings: ProducerSettings,
    sink: FragmentSink,
    rejects: Rejects,
    table: Callable[[], StreamTable | None],
    table_json: Callable[[], bytes],
    complaints: Callable[[], list[str]],
    metrics: ProducerMetrics,
    keys: WriteKeys | None = None,
) -> Door:
    """The producer as an ASGI app; without `keys` everybody may write.

    `table` and `table_json` give the current one (None, b"" before it).
    """
    app = FastAPI(
        title="Baton producer",
        description="Fragments in over HTTP, into Kafka.",
        version="1",
        redirect_slashes=False,  # a redirect repeats the query, and fails where that is not UTF-8
    )
    keys = keys or WriteKeys()
    gate = Gate(Origins(parse_origins(settings.allowed_origins)), keys, metrics)
    door = Door(
        GatedApp(SmallBodies(app), gate),
        gate=gate,
        sink=sink,
        rejects=rejects,
        table=table,
        limits=settings.limits,
        max_inflight_bytes=settings.max_inflight_bytes,
        metrics=metrics,
    )
    writing = WRITE_KEYS if keys.is_needed else []
    install_problems(app)
    install_health(
        app,
        lambda: [c for c in (door.complaint(), keys.complaint(), *complaints()) if c],
        metrics.registry,
        remarks=lambda: [*keys.remarks(), *sink.remarks()],
    )

    @app.post(
        PATH,
        tags=["fragments"],
        summary="Take fragments",
        openapi_extra=FRAGMENTS_REQUEST,
        responses=FRAGMENTS_RESPONSES,
        dependencies=writing,
    )
    async def fragments(request: Request) -> Response:
        answer = await door.answer(request.scope, request.receive)
        return answer if isinstance(answer, Response) else Response(answer, media_type="application/json")

    _install_streams(app, sink, table, table_json, writing)
    install_agent(app)
    return door


def _install_streams(
    app: FastAPI,
    sink: FragmentSink,
    table: Callable[[], StreamTable | None],
    table_json: Callable[[], bytes],
    writing: list[params.Depends],
) -> None:
    """Markers into all streams, and their table; `writing`: what the OpenAPI document asks of writers."""

    @app.post(
        "/markers",
        tags=["fragments"],
        summary="Write a marker into every stream",
        responses=MARKERS_RESPONSES,
        dependencies=writing,
    )
    async def markers(marker: MarkerRequest) -> MarkersWritten:
        if table() is None:
            raise ZooKeeperUnavailable("there is no stream table yet")
        offsets = await sink.send_to_all(encode_marker(marker.time))
        return MarkersWritten(
            markers=[MarkerOffset(stream=stream, offset=offset) for stream, offset in enumerate(offsets)]
        )

    @app.get("/table", tags=["streams"], summary="The stream table, as stored", responses=TABLE_RESPONSES)
    async def stream_table() -> Response:
        if not table_json():
            raise ZooKeeperUnavailable("there is no stream table yet")
        return Response(table_json(), media_type="application/json")
