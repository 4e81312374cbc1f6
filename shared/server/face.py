"""Who answers which request of a listener: an exchange of the service's own, the ASGI app, or a refusal.

A service whose requests are worth it subclasses `Face` and overrides `exchange`. Each listener has one. Used
by connection.py.
"""

from __future__ import annotations

from collections.abc import Callable

from fastapi import Response
from starlette.types import ASGIApp

from shared.errors import Unavailable
from shared.server.answers import AnswerHeads
from shared.server.asgi import AppExchange
from shared.server.connections import WATCHING, Connections
from shared.server.exchange import Exchange, Head, Line, RefusedExchange
from shared.service.http import RETRY_AFTER_S, problem
from shared.service.inflight import Inflight, Overloaded
from shared.service.refusals import refusal

MAX_BYTES = 16 * 1024 * 1024
"""Of what is in flight at a listener whose bodies are bounded elsewhere: a quarter may wait behind others."""


class Leaving(Unavailable):
    """The service is stopping; send this to another one."""


class Face:
    """`app` answers what `exchange` does not answer itself; `inflight` bounds what waits."""

    def __init__(self, app: ASGIApp, inflight: Inflight | None = None) -> None:
        self.app = app
        self.inflight = inflight or Inflight(MAX_BYTES)
        self._heads: AnswerHeads | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} with {self.inflight!r}>"

    def heads(self, standard: Callable[[], list[tuple[bytes, bytes]]]) -> AnswerHeads:
        """The heads of the listener's answers; its connections share them, and so `standard`."""
        if self._heads is None:
            self._heads = AnswerHeads(standard)
        return self._heads

    def exchange(self, line: Line, head: Head) -> Exchange:
        """For a request of a connection."""
        return AppExchange(line, head, self.app, self.cut_answer)

    def excess_exchange(self, line: Line, head: Head, connections: Connections) -> Exchange:
        """For a request of a connection beyond the bound: a 503 unless the client only looks."""
        if head.path in WATCHING and head.method in ("GET", "HEAD"):
            return self.exchange(line, head)
        detail = f"at most {connections.most} connections are accepted here"
        headers = {"retry-after": str(RETRY_AFTER_S)}
        answer = problem(503, "too-many-connections", detail, headers=headers)
        return RefusedExchange(line, head, lambda: self.rejected(answer, "too-many-connections", head))

    def overload_exchange(self, line: Line, head: Head) -> Exchange:
        """For a request that has no room to wait behind others."""
        return RefusedExchange(line, head, lambda: self.rejected(refusal(Overloaded()), "overloaded", head))

    def rejected(self, answer: Response, kind: str, head: Head | None) -> Response:
        """A refusal that no exchange has made, as the client gets it; None: of what has no head."""
        return answer

    def cut_answer(self) -> Response:
        """The answer to a request that a stop of the service ends."""
        return refusal(Leaving())

    def count_cut_off(self) -> None:
        """A connection beyond the bound was ended without an answer."""
