"""The producer's HTTP face: `create_app` makes the ASGI app from its parts.

`POST /fragments` is answered by the Door before FastAPI sees it; its route here is what documents it
(and answers other methods with 405).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import FastAPI, Request, Response
from pydantic import BaseModel, Field

from services.producer.agent import install_agent
from services.producer.body import SmallBodies
from services.producer.door import PATH, Door
from services.producer.gate import Gate, GatedApp
from services.producer.keys import WriteKeys
from services.producer.metrics import ProducerMetrics
from services.producer.origins import Origins, parse_origins
from services.producer.ports import FragmentSink, Rejects
from services.producer.settings import ProducerSettings
from shared.errors import ZooKeeperUnavailable
from shared.fragments import MAX_TIME_MS, encode_marker
from shared.http import PROBLEM, install_health, install_problems
from shared.routing import StreamTable


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
    install_problems(app)
    install_health(
        app,
        lambda: [c for c in (door.complaint(), keys.complaint(), *complaints()) if c],
        metrics.registry,
        remarks=lambda: [remark for remark in [keys.remark()] if remark],
    )

    @app.post(
        PATH, tags=["fragments"], summary="Take fragments", openapi_extra=_OPENAPI, responses=_RESPONSES
    )
    async def fragments(request: Request) -> Response:
        answer = await door.answer(request.scope, request.receive)
        return answer if isinstance(answer, Response) else Response(answer, media_type="application/json")

    @app.post("/markers", tags=["fragments"], summary="Write a marker into every stream")
    async def markers(marker: MarkerRequest) -> MarkersWritten:
        if table() is None:
            raise ZooKeeperUnavailable("there is no stream table yet")
        offsets = await sink.send_to_all(encode_marker(marker.time))
        return MarkersWritten(
            markers=[MarkerOffset(stream=stream, offset=offset) for stream, offset in enumerate(offsets)]
        )

    @app.get("/table", tags=["streams"], summary="The stream table, as stored")
    async def stream_table() -> Response:
        if not table_json():
            raise ZooKeeperUnavailable("there is no stream table yet")
        return Response(table_json(), media_type="application/json")

    install_agent(app)
    return door


_FRAGMENT: dict[str, Any] = {
    "type": "object",
    "required": ["key"],
    "properties": {
        "key": {"type": "string", "description": "which session it belongs to; 1 to 256 bytes of UTF-8"},
        "end": {"type": "boolean", "description": "this fragment ends its session"},
        "time": {
            "description": "event time: ms since the epoch, or RFC 3339; years 1970 … 9999",
            "oneOf": [{"type": "integer"}, {"type": "string", "format": "date-time"}],
        },
        "id": {"type": "string", "description": "minted by the client, so that it may retry; ≤ 64 bytes"},
        "data": {"description": "any JSON, carried untouched"},
    },
}
_REJECTED: dict[str, Any] = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["index", "reason", "detail"],
        "properties": {
            "index": {
                "type": "integer",
                "description": "place in the request, from 0; blank lines do not count",
            },
            "reason": {
                "enum": ["malformed", "invalid", "encoding", "nesting", "key", "id", "time", "size"],
                "type": "string",
            },
            "detail": {"type": "string"},
        },
    },
}
_OPENAPI: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": {"oneOf": [_FRAGMENT, {"type": "array", "items": _FRAGMENT}]}},
            "application/x-ndjson": {"schema": {"type": "string", "description": "one fragment a line"}},
            "text/plain": {"schema": {"type": "string", "description": "JSON or NDJSON, by its content"}},
        },
    }
}


def _problem_response(description: str) -> dict[str, Any]:
    return {"description": description, "content": {PROBLEM: {}}}


_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Kafka acknowledged every accepted fragment",
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["accepted", "rejected"],
                    "properties": {"accepted": {"type": "integer"}, "rejected": _REJECTED},
                }
            }
        },
    },
    400: _problem_response("The body as a whole is not what its type says"),
    401: _problem_response("A write key is needed, and none was given"),
    403: _problem_response("The write key is wrong, or the page's origin is not allowed"),
    408: _problem_response("The body did not arrive in time"),
    413: _problem_response("Too many bytes or fragments"),
    415: _problem_response("The type or encoding is not accepted"),
    422: _problem_response("None of the fragments is acceptable; `rejected` says why"),
    429: _problem_response("Too much is in flight; come again after `Retry-After`"),
    503: _problem_response("Kafka (or the producer) cannot take them now; `unstored` names those not kept"),
}
