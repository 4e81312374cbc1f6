"""What the public port serves when the producer has a private one: everything except what operators need.

`/metrics`, `/status`, `/docs` (with its OpenAPI document) and `/try` say a lot about a producer, and
strangers need none of them. With BATON_PRIVATE_PORT they are answered there only. Health and the agent stay
public. Wired by `__main__.py`.
"""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from shared.service.http import problem

PRIVATE = ("/docs", "/metrics", "/openapi.json", "/status", "/try")
"""Beginnings of paths."""


class PublicFace:
    """`app` without what is private: to strangers it does not exist."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._app
        if scope["type"] == "http" and scope["path"].startswith(PRIVATE):
            answer = problem(404, "not-found", "Not Found")
        await answer(scope, receive, send)
