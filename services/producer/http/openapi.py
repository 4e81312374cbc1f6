"""What the OpenAPI document says of the producer's routes, where FastAPI cannot know it by itself.

`POST /fragments` is read and answered by the door. A test holds every answer to this document, so that
what is said here is so. Used by app.py.
"""

from __future__ import annotations

from typing import Any

from fastapi import Security
from fastapi.security import APIKeyHeader, APIKeyQuery, HTTPBearer

from shared.model.fragments import MAX_ID_BYTES, MAX_KEY_BYTES, MAX_TIME_MS
from shared.service.http import PROBLEM

Responses = dict[int | str, dict[str, Any]]

_FRAGMENT: dict[str, Any] = {
    "type": "object",
    "required": ["key"],
    "properties": {
        "key": {
            "type": "string",
            "minLength": 1,
            "maxLength": MAX_KEY_BYTES,
            "description": f"which session it belongs to; 1 to {MAX_KEY_BYTES} bytes of UTF-8",
        },
        "end": {"type": "boolean", "description": "this fragment ends its session"},
        "time": {
            "description": "event time: ms since the epoch, or RFC 3339; years 1970 … 9999",
            "oneOf": [
                {"type": "integer", "minimum": 0, "maximum": MAX_TIME_MS},
                {"type": "string", "format": "date-time"},
            ],
        },
        "id": {
            "type": "string",
            "maxLength": MAX_ID_BYTES,
            "description": f"minted by the client, so that it may retry; ≤ {MAX_ID_BYTES} bytes of UTF-8",
        },
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
                "minimum": 0,
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
_COUNT: dict[str, Any] = {"type": "integer", "minimum": 0}


def problem_response(description: str, **members: dict[str, Any]) -> dict[str, Any]:
    """A response that is a problem document (RFC 9457), which may have these members."""
    schema = {
        "type": "object",
        "required": ["type", "title", "status", "detail"],
        "properties": {
            "type": {"type": "string", "pattern": "^urn:baton:[a-z-]+$"},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "detail": {"type": "string"},
            **members,
        },
    }
    return {"description": description, "content": {PROBLEM: {"schema": schema}}}


def _with_headers(response: dict[str, Any], **headers: str) -> dict[str, Any]:
    told = {
        name.replace("_", "-"): {"description": description, "schema": {"type": "string"}}
        for name, description in headers.items()
    }
    return response | {"headers": told}


def _again(description: str, **members: dict[str, Any]) -> dict[str, Any]:
    retry_after = {"description": "seconds", "required": True, "schema": {"type": "integer", "minimum": 0}}
    return problem_response(description, **members) | {"headers": {"Retry-After": retry_after}}


FRAGMENTS_REQUEST: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "Fragments, with a `Content-Length` or chunked. `Content-Encoding` may be `gzip` or "
        "`zstd`, one of them. By default a fragment has at most 32 KB, a request 1 MB (sent, and decoded) "
        "and 2,500 fragments; headers have 10 s to arrive, the body 30 s.",
        "content": {
            "application/json": {"schema": {"oneOf": [_FRAGMENT, {"type": "array", "items": _FRAGMENT}]}},
            "application/x-ndjson": {"schema": {"type": "string", "description": "one fragment a line"}},
            "text/plain": {
                "schema": {
                    "type": "string",
                    "description": "as beacons send it: several lines of which the first begins with { and "
                    "ends with } are NDJSON, unless the next begins with a comma, ] or }; all else is JSON",
                }
            },
        },
    }
}
FRAGMENTS_RESPONSES: Responses = {
    200: {
        "description": "Kafka acknowledged every accepted fragment",
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["accepted", "rejected"],
                    "properties": {"accepted": _COUNT, "rejected": _REJECTED},
                }
            }
        },
    },
    400: problem_response("The body as a whole is not what its type and encoding say, or this is no HTTP"),
    401: _with_headers(
        problem_response("A write key is needed, and none was given"), WWW_Authenticate="`Bearer`"
    ),
    403: problem_response("The write key is wrong, or the page's origin is not allowed"),
    408: problem_response("The headers or the body did not arrive in time; may be sent again"),
    413: problem_response("Too many bytes (sent, or decoded) or fragments"),
    415: _with_headers(
        problem_response("No, another, or more than one type; another charset; another or several encodings"),
        Accept="the types, where the type is refused",
        Accept_Encoding="the encodings, where the encoding is refused",
    ),
    422: problem_response(
        "None of the fragments is acceptable; `rejected` says why", accepted=_COUNT, rejected=_REJECTED
    ),
    429: _again("Too much is in flight; come again after `Retry-After`"),
    431: problem_response("More than 32 KB of headers"),
    503: _again(
        "Kafka (or the producer) cannot take them now; `unstored` names those not kept",
        accepted=_COUNT,
        unstored={"type": "array", "items": _COUNT},
        rejected=_REJECTED,
    ),
}
MARKERS_RESPONSES: Responses = {
    400: problem_response("The body is not JSON"),
    401: FRAGMENTS_RESPONSES[401],
    403: FRAGMENTS_RESPONSES[403],
    408: FRAGMENTS_RESPONSES[408],
    413: problem_response("More than 16 KB"),
    422: problem_response("The marker has faults", errors={"type": "array", "items": {"type": "object"}}),
    503: _again("Not every stream has the marker; writing it again is harmless"),
}
TABLE_RESPONSES: Responses = {503: _again("There is no stream table yet")}
WRITE_KEYS = [
    Security(HTTPBearer(auto_error=False, scheme_name="bearer", description="a write key")),
    Security(APIKeyHeader(name="X-Write-Key", auto_error=False, scheme_name="header")),
    Security(APIKeyQuery(name="write_key", auto_error=False, scheme_name="query")),
]
"""The ways to give a write key, as documentation only: the gate has decided before the app is asked."""
