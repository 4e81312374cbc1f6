"""Serves control under a path of a proxy, like `/baton`: BATON_ROOT_PATH.

ASGI middleware in front of everything. The proxy may pass the prefix on or remove it: control's routes know
nothing of it. Pages get it from `Pages`; here it is put before the places that answers lead to.
"""

from __future__ import annotations

from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_PLACES: Final = (("location", "/"), ("link", "</"))
"""Headers that lead to a path of control, and how they begin then."""


class Prefix:
    """Removes `root_path` (like `/baton`) from the paths of requests, and adds it to those in answers."""

    def __init__(self, app: ASGIApp, root_path: str) -> None:
        self._app = app
        self._root_path = root_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not self._root_path:
            await self._app(scope, receive, send)
            return

        async def send_with(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._lead(MutableHeaders(scope=message))
            await send(message)

        await self._app({**scope, "path": self._own(scope["path"])}, receive, send_with)

    def _own(self, path: str) -> str:
        if path == self._root_path:
            return "/"
        return path.removeprefix(self._root_path) if path.startswith(f"{self._root_path}/") else path

    def _lead(self, headers: MutableHeaders) -> None:
        for name, begin in _PLACES:
            place = headers.get(name, "")
            if place.startswith(begin):
                headers[name] = begin[:-1] + self._root_path + place[len(begin) - 1 :]
