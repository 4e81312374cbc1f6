"""Who answers which request of a queue worker: the desk those about items, the ASGI app all others."""

from __future__ import annotations

from starlette.types import ASGIApp

from services.queue.http.exchange import Desk, ItemExchange
from shared.server.exchange import Exchange, Head, Line
from shared.server.face import Face


class QueueFace(Face):
    """`POST /queues/{queue}/{handler}` goes to a handler of the desk."""

    def __init__(self, desk: Desk, app: ASGIApp) -> None:
        super().__init__(app, desk.inflight)
        self._desk = desk

    def exchange(self, line: Line, head: Head) -> Exchange:
        if head.method == "POST":
            parts = head.path.split("/")
            if len(parts) == 4 and parts[1] == "queues" and parts[3] in self._desk.handlers:
                return ItemExchange(line, head, self._desk, parts[2], parts[3])
        return super().exchange(line, head)
