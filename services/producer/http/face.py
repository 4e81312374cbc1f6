"""Who answers which request: the door `POST /fragments`, the ASGI app everything else.

Made by `app.py`; each listener has one (the public one may show less).
"""

from __future__ import annotations

from fastapi import Response
from starlette.types import ASGIApp

from services.producer.http.door import Door, FragmentsExchange
from services.producer.http.gate import FRAGMENTS
from shared.server.answers import Pairs
from shared.server.exchange import Exchange, Head, Line
from shared.server.face import Face, Leaving


class ProducerFace(Face):
    """`door` answers `POST /fragments`, `app` everything else."""

    def __init__(self, door: Door, app: ASGIApp) -> None:
        super().__init__(app, door.inflight)
        self.door = door

    def exchange(self, line: Line, head: Head) -> Exchange:
        if head.path == FRAGMENTS and head.method == "POST":
            return FragmentsExchange(line, head, self.door)
        return super().exchange(line, head)

    def rejected(self, answer: Response, kind: str, head: Head | None) -> Response:
        """The refusal with the headers for the request's origin, counted."""
        self.door.metrics.reject(answer.status_code, kind)
        answer.raw_headers += self._headers(head)
        return answer

    def cut_answer(self) -> Response:
        return self.door.refused(Leaving())

    def count_cut_off(self) -> None:
        self.door.metrics.reject(503, "too-many-connections")

    def _headers(self, head: Head | None) -> Pairs:
        """The headers that answers to a request carry because of its origin."""
        if head is None or head.path != FRAGMENTS:
            return ()
        return self.door.gate.headers(head.named.get(b"origin"))
