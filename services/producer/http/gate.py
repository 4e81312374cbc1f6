"""The gate: whether a request may write at all, by its origin and its write key, before its body is read.

The door asks it for each `POST /fragments`; as ASGI middleware around the FastAPI app it answers preflights,
guards `POST /markers`, and adds the headers of origins.py to the other answers of `/fragments`.
"""

from __future__ import annotations

from fastapi import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.producer.http.keys import KeysUnread, MissingKey, WriteKeys, WrongKey
from services.producer.http.metrics import ProducerMetrics
from services.producer.http.origins import PREFLIGHT, OriginRefused, Origins, Pairs
from shared.errors import BatonError
from shared.service.http import kind_for, problem, problem_for

FRAGMENTS = "/fragments"
MARKERS = "/markers"
_CHALLENGE = {"WWW-Authenticate": "Bearer"}


class Gate:
    """Origins and write keys together; `metrics` hears whom GatedApp refused."""

    def __init__(self, origins: Origins, keys: WriteKeys, metrics: ProducerMetrics) -> None:
        self._origins = origins
        self._keys = keys
        self.metrics = metrics

    def __repr__(self) -> str:
        return f"<Gate: {self._origins!r}, {self._keys!r}>"

    def headers(self, scope: Scope) -> Pairs:
        """The headers that the answer carries for the request's origin, whatever the answer is; 0.4 µs."""
        return self._origins.headers_for(_origin(scope))

    def check(self, scope: Scope) -> None:
        """Returns when the request may write. Raises OriginRefused, MissingKey, WrongKey or KeysUnread."""
        if self._origins.is_restricted:
            self._origins.check(_origin(scope))
        if self._keys.is_needed:
            self._keys.check(scope["headers"], scope.get("query_string", b""))


REFUSALS = (OriginRefused, MissingKey, WrongKey, KeysUnread)


def refusal(error: BatonError) -> Response:
    """The problem document of one of REFUSALS."""
    if isinstance(error, MissingKey):
        return problem(401, kind_for(error), error.detail, headers=_CHALLENGE)
    if isinstance(error, KeysUnread):
        return problem_for(error)
    return problem(403, kind_for(error), error.detail)


class GatedApp:
    """The app behind the gate; the door stands before both and answers `POST /fragments` itself."""

    def __init__(self, app: ASGIApp, gate: Gate) -> None:
        self._app = app
        self._gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] not in (FRAGMENTS, MARKERS):
            await self._app(scope, receive, send)
        elif scope["path"] == FRAGMENTS:
            await self._fragments(scope, receive, send)
        else:
            await self._markers(scope, receive, send)

    async def _fragments(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = self._gate.headers(scope)
        if scope["method"] == "OPTIONS":
            await _preflight(headers)(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *headers]
            await send(message)

        await self._app(scope, receive, send_with_headers)

    async def _markers(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if scope["method"] == "POST":
                self._gate.check(scope)
        except REFUSALS as error:
            self._gate.metrics.refused[kind_for(error)] += 1
            await refusal(error)(scope, receive, send)
            return
        await self._app(scope, receive, send)


def _preflight(headers: Pairs) -> Response:
    """204 in any case: a browser that is not told its origin sends nothing, and says why in its console."""
    answer = Response(status_code=204, headers={"Allow": "OPTIONS, POST"})
    answer.raw_headers += headers
    if any(name == b"access-control-allow-origin" for name, _ in headers):
        answer.raw_headers += PREFLIGHT
    return answer


def _origin(scope: Scope) -> bytes | None:
    for name, value in scope["headers"]:
        if name == b"origin":
            return value  # type: ignore[no-any-return]
    return None
