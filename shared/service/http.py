"""What the HTTP interfaces of all services share: problem documents (RFC 9457), status codes, health, HEAD.

Used by the `app.py` of every service.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import msgspec
import prometheus_client
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shared.errors import (
    BatonError,
    Conflict,
    InvalidInput,
    InvariantBroken,
    NotFound,
    Unauthorized,
    Unavailable,
)

PROBLEM = "application/problem+json"
RETRY_AFTER_S = 1
METHODS = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")
"""The methods that a route of ours can have."""
LINKED = {"operation": "operations", "run": "runs"}
"""Members of a problem document that name a resource, and the list that it is in."""

STATUS: tuple[tuple[type[BatonError], int], ...] = (
    (NotFound, 404),
    (Unauthorized, 403),
    (InvalidInput, 422),
    (Conflict, 409),
    (Unavailable, 503),
    (InvariantBroken, 500),
    (BatonError, 500),
)
"""The first match wins, so subclasses come first."""


_NOT_READY: dict[int | str, dict[str, Any]] = {
    503: {
        "description": "`detail` says what is missing",
        "content": {PROBLEM: {"schema": {"type": "object"}}},
    }
}


def problem(
    status: int, kind: str, detail: str, *, headers: dict[str, str] | None = None, **members: Any
) -> Response:
    """A problem document: `type` is `urn:baton:<kind>`, `title` the phrase of the status."""
    body = {
        "type": f"urn:baton:{kind}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        **members,
    }
    return Response(msgspec.json.encode(body), status, media_type=PROBLEM, headers=headers)


def kind_for(error: BatonError) -> str:
    """`KafkaUnavailable` → `kafka-unavailable`."""
    name = type(error).__name__
    return "".join(f"-{c.lower()}" if c.isupper() and i else c.lower() for i, c in enumerate(name))


def kind_of_status(status: int) -> str:
    """The kind of a problem that only has a status.

    >>> kind_of_status(404)
    'not-found'
    """
    return HTTPStatus(status).phrase.lower().replace(" ", "-")


def problem_for(error: BatonError) -> Response:
    """The problem document of a BatonError; it names no addresses of servers, which are for the log."""
    status = next(status for kind, status in STATUS if isinstance(error, kind))
    # only this status says that a retry may succeed
    headers = {"Retry-After": str(RETRY_AFTER_S)} if status == 503 else {}
    members = error.members if isinstance(error, Conflict) else {}
    links = [f'</{LINKED[name]}/{value}>; rel="related"' for name, value in members.items() if name in LINKED]
    headers |= {"Link": ", ".join(links)} if links else {}
    detail = error.reason if isinstance(error, Unavailable) else error.detail
    return problem(status, kind_for(error), detail, headers=headers, **members)


def install_problems(app: FastAPI) -> None:
    """Makes the app answer every error with a problem document."""

    async def ours(_: Request, error: Exception) -> Response:
        assert isinstance(error, BatonError)
        return problem_for(error)

    async def validation(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        errors = [
            {"in": ".".join(str(part) for part in fault["loc"]), "detail": fault["msg"]}
            for fault in error.errors()
        ]
        return problem(422, "invalid-input", "the request has faults", errors=errors)

    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        kind = kind_of_status(error.status_code)
        headers = dict(error.headers or {})
        if error.status_code == 405:
            # the framework only knows the methods of one route, and GET and DELETE of a path may be two
            headers["Allow"] = ", ".join(methods_at(app, request.scope))
        return problem(error.status_code, kind, str(error.detail), headers=headers)

    async def unexpected(_: Request, error: Exception) -> Response:
        # the framework raises the error again after this answer, and the server logs it
        return problem(500, "internal-server-error", "an internal error; it has been logged")

    app.add_exception_handler(BatonError, ours)
    app.add_exception_handler(RequestValidationError, validation)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(Exception, unexpected)


def methods_at(app: FastAPI, scope: Scope) -> list[str]:
    """The methods that the path of the request answers, sorted; HEAD wherever GET."""

    def is_answered(method: str) -> bool:
        as_method = {**scope, "method": "GET" if method == "HEAD" else method}
        return any(route.matches(as_method)[0] is Match.FULL for route in app.router.routes)

    return [method for method in METHODS if is_answered(method)]


class HeadAnswers:
    """ASGI middleware: answers HEAD with the status and the headers of GET, and without its body."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def send_head(message: Message) -> None:
            if message["type"] == "http.response.start":
                await send(message)
                await send({"type": "http.response.body"})
            elif message.get("more_body", False):
                raise _HeadSent  # a body may have no end: server-sent events

        # a server's own scope still says HEAD, so it does not wait for the announced bytes
        with contextlib.suppress(_HeadSent, ClientDisconnect):
            await self._app({**scope, "method": "GET"}, receive, send_head)


class _HeadSent(OSError):
    """Ends a streamed answer as a client does that has gone away."""


def install_health(
    app: FastAPI,
    complaints: Callable[[], list[str]],
    registry: prometheus_client.CollectorRegistry,
    *,
    remarks: Callable[[], list[str]] = list,
) -> None:
    """Adds `/livez` (the process runs), `/readyz` (503 while `complaints()` returns any) and `/metrics`.

    `remarks()` are for a person's attention although the service works: /readyz returns them with its 200.
    """

    @app.get("/livez", tags=["health"], summary="The process answers")
    async def livez() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/readyz", tags=["health"], summary="The service can do its work", responses=_NOT_READY)
    async def readyz() -> Response:
        if faults := complaints():
            return problem(503, "not-ready", "; ".join(faults), headers={"Retry-After": str(RETRY_AFTER_S)})
        body = {"status": "ok"} | ({"remarks": notes} if (notes := remarks()) else {})
        return Response(msgspec.json.encode(body), media_type="application/json")

    @app.get("/metrics", tags=["health"], summary="Prometheus metrics", include_in_schema=False)
    async def metrics() -> Response:
        return Response(
            prometheus_client.generate_latest(registry), media_type=prometheus_client.CONTENT_TYPE_LATEST
        )
