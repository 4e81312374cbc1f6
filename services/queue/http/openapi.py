"""How the queue's routes describe their JSON: by the msgspec structs that they decode and encode."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from shared.service.http import PROBLEM

_PROBLEM: Final = {"content": {PROBLEM: {"schema": {"type": "object"}}}}
_REFUSALS: Final = {
    400: "The body is unreadable",
    404: "There is no such queue",
    409: "All receipts are stale, or it does not fit the queue",
    413: "The body is too large",
    415: "The type or the encoding of the body is not supported",
    422: "A value is not acceptable, or no item is",
    429: "Too many bytes are in flight",
    503: "Kafka is not reachable, or has not acknowledged in time",
}


def described(taken: type[msgspec.Struct] | None, answered: type[msgspec.Struct]) -> dict[str, Any]:
    """The arguments of a route that takes and answers these structs."""
    ok = {
        "description": (answered.__doc__ or "").partition("\n")[0],
        "content": {"application/json": {"schema": _schema(answered)}},
    }
    responses: dict[int | str, dict[str, Any]] = {200: ok}
    responses |= {status: {"description": text} | _PROBLEM for status, text in _REFUSALS.items()}
    described: dict[str, Any] = {"responses": responses}
    if taken is not None:
        body = {"content": {"application/json": {"schema": _schema(taken)}}, "required": True}
        described["openapi_extra"] = {"requestBody": body}
    return described


def _schema(struct: type[msgspec.Struct]) -> dict[str, Any]:
    """The struct's schema with those that it uses put in their places."""
    (_,), components = msgspec.json.schema_components([struct], ref_template="{name}")

    def inline(value: Any) -> Any:
        if isinstance(value, dict):
            ref = value.get("$ref")
            return inline(components[ref]) if ref else {name: inline(one) for name, one in value.items()}
        return [inline(one) for one in value] if isinstance(value, list) else value

    inlined: dict[str, Any] = inline(components[struct.__name__])
    return inlined
