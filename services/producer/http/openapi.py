"""What the producer's OpenAPI document says beyond what FastAPI derives from the routes.

No route answers `POST /fragments` (the door does), so `document_fragments` adds it to the document. A test
compares every answer with this document. Used by `app.py`.
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Security
from fastapi.security import APIKeyHeader, APIKeyQuery, HTTPBearer

from services.producer.http.gate import FRAGMENTS
from shared.model.fragments import MAX_ID_BYTES, MAX_KEY_BYTES, MAX_TIME_MS
from shared.model.rejects import FRAGMENT_REASONS
from shared.service.http import PROBLEM

Schema = dict[str, Any]
Responses = dict[int | str, dict[str, Any]]


def _object(required: str, **properties: Schema) -> Schema:
    return {"type": "object", "required": required.split(), "properties": properties}


def _array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


_TEXT: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_FRAGMENT = _object(
    "key",
    key={
        "type": "string",
        "minLength": 1,
        "maxLength": MAX_KEY_BYTES,
        "pattern": "^[^\\u0000]*$",
        "description": f"the session that the fragment belongs to; 1 to {MAX_KEY_BYTES} bytes of UTF-8, no 0",
    },
    end={"type": "boolean", "description": "this fragment ends its session"},
    time={
        "description": "event time: ms since the epoch, or RFC 3339; years 1970 … 9999",
        "oneOf": [
            {"type": "integer", "minimum": 0, "maximum": MAX_TIME_MS},
            {"type": "string", "format": "date-time"},
        ],
    },
    id={
        "type": "string",
        "minLength": 1,
        "maxLength": MAX_ID_BYTES,
        "description": f"chosen by the client, so that it may retry; 1 to {MAX_ID_BYTES} bytes of UTF-8",
    },
    data={"description": "any JSON; stored as it is"},
)
_REJECTED = _array(
    _object(
        "index reason detail",
        index=_COUNT | {"description": "position in the request, from 0; blank lines do not count"},
        reason={"enum": [*FRAGMENT_REASONS], "type": "string"},
        detail=_TEXT,
    )
)


def problem_response(description: str, headers: Schema | None = None, **members: Schema) -> Schema:
    """The response for a problem document (RFC 9457), which may have these headers and further members."""
    schema = _object(
        "type title status detail",
        type={"type": "string", "pattern": "^urn:baton:[a-z-]+$"},
        title=_TEXT,
        status={"type": "integer"},
        detail=_TEXT,
        **members,
    )
    response = {"description": description, "content": {PROBLEM: {"schema": schema}}}
    return response | ({"headers": headers} if headers else {})


_COUNTS: Schema = {"type": "object", "additionalProperties": _COUNT}
STATUS_RESPONSES: Responses = {
    200: {
        "description": "The counts of the producer since it started",
        "content": {
            "application/json": {
                "schema": _object(
                    "id at accepted unstored rejected refused",
                    id=_TEXT | {"description": "its id in ZooKeeper"},
                    at=_COUNT | {"description": "when it counted, ms UTC"},
                    accepted=_COUNT | {"description": "fragments that Kafka acknowledged"},
                    unstored=_COUNT | {"description": "fragments that Kafka did not acknowledge"},
                    rejected=_COUNTS | {"description": "rejected fragments by reason"},
                    refused=_COUNTS | {"description": "refused requests by type of problem"},
                )
            }
        },
    }
}


def _header(description: str) -> Schema:
    return {"description": description, "schema": _TEXT}


_RETRY: Schema = {"Retry-After": {"description": "seconds", "required": True, "schema": _COUNT}}
_REQUEST: Schema = {
    "required": True,
    "description": "Fragments, with a `Content-Length` or chunked. `Content-Encoding` may be `gzip` or "
    "`zstd`, not both. By default a fragment has at most 32 KB, and a request at most 1 MB (encoded and "
    "decoded) and 2,500 fragments; the headers must arrive within 10 s, the body within 30 s.",
    "content": {
        "application/json": {"schema": {"oneOf": [_FRAGMENT, _array(_FRAGMENT)]}},
        "application/x-ndjson": {"schema": _TEXT | {"description": "one fragment per line"}},
        "text/plain": {
            "schema": _TEXT
            | {
                "description": "as beacons send it. Several lines are NDJSON if the first begins with { and "
                "ends with }, and the next does not begin with a comma, ] or }; anything else is JSON"
            }
        },
    },
}
FRAGMENTS_RESPONSES: Responses = {
    200: {
        "description": "Kafka acknowledged every accepted fragment",
        "content": {
            "application/json": {
                "schema": _object("accepted rejected", accepted=_COUNT, rejected=_REJECTED),
            }
        },
    },
    400: problem_response("The body does not match its type or encoding, or the request is not HTTP"),
    401: problem_response("A write key is required and missing", {"WWW-Authenticate": _header("`Bearer`")}),
    403: problem_response(
        "The write key is wrong or lacks the scope (`write` here), or the page's origin is not allowed"
    ),
    408: problem_response("The headers or the body did not arrive in time; may be sent again"),
    413: problem_response("Too many bytes (encoded or decoded) or too many fragments"),
    415: problem_response(
        "The type is missing, repeated or unsupported, or the charset or encoding is",
        {
            "Accept": _header("the supported types, if the type is the problem"),
            "Accept-Encoding": _header("the supported encodings, if the encoding is the problem"),
        },
    ),
    422: problem_response(
        "None of the fragments is acceptable; `rejected` says why", accepted=_COUNT, rejected=_REJECTED
    ),
    429: problem_response(
        "Too many bytes are in flight, or the write key's rate is used up; retry after `Retry-After`", _RETRY
    ),
    431: problem_response("More than 32 KB of headers"),
    503: problem_response(
        "Kafka or the producer is unavailable; `unstored` lists the fragments that are not stored",
        _RETRY,
        accepted=_COUNT,
        unstored=_array(_COUNT),
        rejected=_REJECTED,
    ),
}
MARKERS_RESPONSES: Responses = {
    400: problem_response("The body is not JSON"),
    401: FRAGMENTS_RESPONSES[401],
    403: problem_response(
        "The write key is wrong or lacks the scope (`mark` here), or the page's origin is not allowed"
    ),
    408: FRAGMENTS_RESPONSES[408],
    413: problem_response("More than 16 KB"),
    422: problem_response("The marker is invalid", errors=_array({"type": "object"})),
    429: problem_response("The write key's rate is used up; retry after `Retry-After`", _RETRY),
    503: problem_response("Not every stream has the marker; writing it again is harmless", _RETRY),
}
TABLE_RESPONSES: Responses = {503: problem_response("There is no stream table yet", _RETRY)}
WRITE_KEYS = [
    Security(HTTPBearer(auto_error=False, scheme_name="bearer", description="a write key")),
    Security(APIKeyHeader(name="X-Write-Key", auto_error=False, scheme_name="header")),
    Security(APIKeyQuery(name="write_key", auto_error=False, scheme_name="query")),
]
"""The ways to send a write key, for documentation only: the gate decides before the app sees the request."""


def document_fragments(app: FastAPI, *, needs_key: bool) -> None:
    """Adds `POST /fragments` to the OpenAPI document of the app."""
    of_routes = app.openapi
    operation: dict[str, Any] = {
        "operationId": "fragments_fragments_post",
        "tags": ["fragments"],
        "summary": "Accept fragments",
        "requestBody": _REQUEST,
        "responses": {str(status): response for status, response in FRAGMENTS_RESPONSES.items()},
    }
    if needs_key:
        operation["security"] = [{scheme: []} for scheme in ("bearer", "header", "query")]

    def openapi() -> dict[str, Any]:
        document = of_routes()
        document["paths"][FRAGMENTS] = {"post": operation}
        return document

    app.openapi = openapi  # type: ignore[method-assign]
