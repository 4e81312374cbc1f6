"""Who answers which request: the door, the ASGI app, or a refusal.

Made by `app.py`; each listener has one (the public one may show less). Used by connection.py.
"""

from __future__ import annotations

from collections.abc import Callable

from fastapi import Response
from starlette.types import ASGIApp

from services.producer.http.door import Door, FragmentsExchange, Leaving
from services.producer.http.gate import FRAGMENTS
from services.producer.http.protocol.answers import AnswerHeads, Pairs
from services.producer.http.protocol.asgi import AppExchange
from services.producer.http.protocol.connections import WATCHING, Connections
from services.producer.http.protocol.exchange import Exchange, Head, Line, RefusedExchange
from services.producer.http.refusals import refusal
from shared.service.http import RETRY_AFTER_S, problem
from shared.service.inflight import Overloaded


class Face:
    """`door` answers `POST /fragments`, `app` everything else."""

    def __init__(self, door: Door, app: ASGIApp) -> None:
        self.door = door
        self.app = app
        self._heads: AnswerHeads | None = None

    def __repr__(self) -> str:
        return f"<Face with {self.door!r}>"

    def heads(self, standard: Callable[[], list[tuple[bytes, bytes]]]) -> AnswerHeads:
        """The heads of the listener's answers; its connections share them, and so `standard`."""
        if self._heads is None:
            self._heads = AnswerHeads(standard)
        return self._heads

    def exchange(self, line: Line, head: Head) -> Exchange:
        """For a request of a connection."""
        if head.path == FRAGMENTS and head.method == "POST":
            return FragmentsExchange(line, head, self.door)
        return AppExchange(line, head, self.app, self._cut)

    def excess_exchange(self, line: Line, head: Head, connections: Connections) -> Exchange:
        """For a request of a connection beyond the bound: a 503 unless the client only looks."""
        if head.path in WATCHING and head.method in ("GET", "HEAD"):
            return self.exchange(line, head)
        detail = f"the producer accepts at most {connections.most} connections"
        headers = {"retry-after": str(RETRY_AFTER_S)}
        answer = problem(503, "too-many-connections", detail, headers=headers)
        return RefusedExchange(line, head, lambda: self.rejected(answer, "too-many-connections", head))

    def overload_exchange(self, line: Line, head: Head) -> Exchange:
        """For a request that has no room to wait behind others."""
        return RefusedExchange(line, head, lambda: self.rejected(refusal(Overloaded()), "overloaded", head))

    def rejected(self, answer: Response, kind: str, head: Head | None) -> Response:
        """The refusal with the headers for the request's origin, counted."""
        self.door.metrics.reject(answer.status_code, kind)
        answer.raw_headers += self.headers(head)
        return answer

    def count_cut_off(self) -> None:
        """A connection beyond the bound was ended without an answer."""
        self.door.metrics.reject(503, "too-many-connections")

    def headers(self, head: Head | None) -> Pairs:
        """The headers that answers to a request carry because of its origin."""
        if head is None or head.path != FRAGMENTS:
            return ()
        return self.door.gate.headers(head.headers)

    def _cut(self) -> Response:
        return self.door.refused(Leaving())
