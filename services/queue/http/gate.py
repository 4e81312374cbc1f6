"""Asks for keys in front of the framework's routes; exchange.py does so for the requests about items."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from services.queue.http.keys import QueueKeys
from services.queue.http.refusals import refusal
from shared.errors import BatonError


class KeyGate:
    """ASGI middleware: lets in what the keys allow, before a body is read."""

    def __init__(self, app: ASGIApp, keys: QueueKeys) -> None:
        self._app, self._keys = app, keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._app
        if scope["type"] == "http":
            try:
                grant = self._keys.check(scope["method"], scope["path"], Headers(scope=scope))
                scope.setdefault("state", {})["grant"] = grant
            except BatonError as error:
                answer = refusal(error)
        await answer(scope, receive, send)
