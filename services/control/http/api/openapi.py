"""How control's routes describe their JSON: by the msgspec structs that they encode and decode.

FastAPI derives schemas from pydantic models only. So a route names its struct (`answers`, `takes`), and
`complete_document` adds what msgspec derives from the structs to the document. Each struct is the only
description of its JSON. Used by every file of this folder and by app.py.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Annotated, Any

import msgspec
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError

from services.control.http.api.access.documented import document_roles
from services.control.http.api.bodies import bounded_body
from shared.model.json_faults import syntax_fault
from shared.service.http import PROBLEM

JSON = "application/json"
REF = "#/components/schemas/{name}"

Content = dict[str, Any]
Responses = dict[int | str, dict[str, Any]]


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One fault of a request."""

    in_: Annotated[str, msgspec.Meta(description="the parameter or the field, as a dotted path")] = (
        msgspec.field(name="in")
    )
    detail: str


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A problem document (RFC 9457)."""

    type: Annotated[str, msgspec.Meta(pattern="^urn:baton:[a-z-]+$")]
    title: str
    status: int
    detail: Annotated[str, msgspec.Meta(description="one sentence for a person")]
    errors: Annotated[list[Fault], msgspec.Meta(description="every fault of the request")] = []
    operation: Annotated[str, msgspec.Meta(description="id of the operation in the way")] = ""
    run: Annotated[str, msgspec.Meta(description="id of the run in the way")] = ""
    plan: Annotated[str, msgspec.Meta(description="what `if_plan` would have to be now")] = ""


def schema_of(struct: type) -> Content:
    """The reference to the struct's schema; `complete_document` must be given the struct."""
    return {"$ref": REF.format(name=struct.__name__)}


def answers(struct: type[msgspec.Struct], status: int = 200, description: str = "") -> Responses:
    """The response that carries the struct as JSON; its description is the struct's, if none is given."""
    description = description or inspect.getdoc(struct) or ""
    return {status: {"description": description, "content": {JSON: {"schema": schema_of(struct)}}}}


def refuses(status: int, description: str) -> Responses:
    """The response that is a problem document."""
    response: Content = {
        "description": description,
        "content": {PROBLEM: {"schema": schema_of(Problem)}},
    }
    if status == 503:
        retry_after = {"description": "seconds", "schema": {"type": "integer", "minimum": 0}}
        response["headers"] = {"Retry-After": retry_after}
    return {status: response}


def takes(kind: Any, description: str, *, required: bool = True) -> Content:
    """The request body, for a route's `openapi_extra`; `kind` is a union of structs."""
    (schema,), _ = msgspec.json.schema_components([kind], ref_template=REF)
    return takes_json(schema, description, required=required)


def takes_json(schema: Content, description: str, *, required: bool = True) -> Content:
    """The request body of this schema, for a route's `openapi_extra`."""
    body = {"required": required, "description": description, "content": {JSON: {"schema": schema}}}
    return {"requestBody": body}


async def read_body(request: Request, kind: Any) -> Any:
    """The JSON body as `kind`; an empty body is null.

    msgspec parses it, because FastAPI would accept half of a surrogate pair, which no answer could repeat.
    Raises HTTPException (413) if the body is too large, (400) if it is not UTF-8, and RequestValidationError
    (422), which names the faulty field.
    """
    raw = await bounded_body(request)
    try:
        return msgspec.convert(_with_integers(msgspec.json.decode(raw.decode() or "null")), kind)
    except UnicodeDecodeError:
        raise HTTPException(400, "the body is not UTF-8") from None
    except RecursionError:
        raise _invalid("nested too deeply") from None
    except msgspec.ValidationError as error:
        what, _, path = str(error).partition(" - at `$")
        raise _invalid(what, path.rstrip("`")) from None
    except msgspec.DecodeError as error:
        raise _invalid(syntax_fault(raw, str(error))) from None


def _with_integers(value: Any) -> Any:
    """The value with 3.0 as 3 in its fields: for JSON schema both are integers."""
    if not isinstance(value, dict):
        return value
    return {
        name: int(field) if isinstance(field, float) and field.is_integer() else field
        for name, field in value.items()
    }


def _invalid(what: str, path: str = "") -> RequestValidationError:
    return RequestValidationError([{"loc": (f"body{path}",), "msg": what}])


def encoded(value: object, status: int = 200, *, location: str | None = None) -> Response:
    """The answer that carries the value as JSON."""
    headers = {"Location": location} if location else None
    return Response(msgspec.json.encode(value), status, headers=headers, media_type=JSON)


def complete_document(
    app: FastAPI, *, answered: Iterable[type[msgspec.Struct]], taken: Iterable[Any]
) -> None:
    """The app's OpenAPI document has the schemas of these structs and of what they contain, and the roles."""

    def openapi() -> Content:
        if app.openapi_schema is None:
            document = FastAPI.openapi(app)
            schemas = _schemas(answered, taken)
            document.setdefault("components", {}).setdefault("schemas", {}).update(schemas)
            document_roles(document)
        return FastAPI.openapi(app)

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's documented way to extend the document


def _schemas(answered: Iterable[type[msgspec.Struct]], taken: Iterable[Any]) -> Content:
    answered = [*answered, Problem]
    _, schemas = msgspec.json.schema_components(answered, ref_template=REF)
    sparse = {struct.__name__ for struct in answered if struct.__struct_config__.omit_defaults}
    for name, schema in schemas.items():
        # a default helps those who read JSON; what control writes holds every field
        if name not in sparse and "properties" in schema:
            schema["required"] = list(schema["properties"])
    _, requests = msgspec.json.schema_components(taken, ref_template=REF)
    return schemas | requests
