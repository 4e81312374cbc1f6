"""The gate: decides by origin and write key whether a request may write, before its body is read.

The door asks it for each `POST /fragments`. As ASGI middleware around the FastAPI app (`GatedApp`) it also
answers preflights and other methods at `/fragments`, and guards `POST /markers`.
"""

from __future__ import annotations

from fastapi import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from services.producer.http.access.grants import Scope as KeyScope
from services.producer.http.access.keys import Headers, WriteKey, WriteKeys
from services.producer.http.access.origins import PREFLIGHT, Origins
from services.producer.http.metrics import ProducerMetrics
from services.producer.http.refusals import refusal
from shared.errors import BatonError
from shared.server.answers import Pairs
from shared.service.http import kind_for, problem

FRAGMENTS = "/fragments"
MARKERS = "/markers"


class Gate:
    """Origins and write keys together; `metrics` counts what GatedApp rejects."""

    def __init__(self, origins: Origins, keys: WriteKeys, metrics: ProducerMetrics) -> None:
        self._origins = origins
        self._keys = keys
        self.metrics = metrics

    def __repr__(self) -> str:
        return f"<Gate: {self._origins!r}, {self._keys!r}>"

    def headers(self, origin: bytes | None) -> Pairs:
        """The headers that every answer to a request of this origin carries because of it."""
        return self._origins.headers_for(origin)

    def check(self, headers: Headers, query: bytes, needed: KeyScope) -> WriteKey | None:
        """The key of a request that may write, which must count its fragments; None if no key is needed.

        Raises OriginRefused, and what WriteKeys.check raises.
        """
        if self._origins.is_restricted:
            self._origins.check(_origin(headers))
        if self._keys.is_needed:
            return self._keys.check(headers, query, needed)
        return None


class GatedApp:
    """The app behind the gate. The door stands in front and answers `POST /fragments` itself."""

    def __init__(self, app: ASGIApp, gate: Gate) -> None:
        self._app = app
        self._gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._app
        if scope["type"] == "http" and scope["path"] == FRAGMENTS:
            answer = self._preflight(scope) if scope["method"] == "OPTIONS" else self._not_allowed(scope)
        elif scope["type"] == "http" and scope["path"] == MARKERS and scope["method"] == "POST":
            answer = self._checked_marker(scope)
        await answer(scope, receive, send)

    def _preflight(self, scope: Scope) -> ASGIApp:
        """204 for any origin: without the headers for it a browser sends nothing, and logs the reason."""
        answer = Response(status_code=204, headers={"Allow": "OPTIONS, POST"})
        headers = self._gate.headers(_origin(scope["headers"]))
        answer.raw_headers += headers
        # a browser needs the methods only if its origin is allowed
        if any(name == b"access-control-allow-origin" for name, _ in headers):
            answer.raw_headers += PREFLIGHT
        return answer

    def _not_allowed(self, scope: Scope) -> ASGIApp:
        answer = problem(405, "method-not-allowed", "only POST is allowed here", headers={"Allow": "POST"})
        answer.raw_headers += self._gate.headers(_origin(scope["headers"]))
        return answer

    def _checked_marker(self, scope: Scope) -> ASGIApp:
        try:
            self._gate.check(scope["headers"], scope.get("query_string", b""), KeyScope.MARK)
        except BatonError as error:
            self._gate.metrics.refused[kind_for(error)] += 1
            return refusal(error)
        return self._app


def _origin(headers: Headers) -> bytes | None:
    for name, value in headers:
        if name == b"origin":
            return value
    return None
