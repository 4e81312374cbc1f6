"""The guard in front of a service: refuses what a foreign web page can make a visitor's browser send.

A browser reaches a service on behalf of any page that it shows, and may send what the service trusts: its
address, or a cookie. So three headers decide before anything else sees the request. `Host` stops pages that
point a name of their own at the service's address and then read its answers (DNS rebinding). `Origin` and the
type of the body stop forms and scripts of other sites that change something.

Answers may hold what clients posted. So no cache may store them and no browser may guess that they are pages,
unless a route says otherwise. Used by the `app.py` of every service.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
from collections.abc import Callable, Collection, Iterable

from fastapi import Response
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shared.service.http import problem

JSON = "application/json"
READING = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
"""Methods that change nothing."""
HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
"""Of all answers, unless a route sets its own."""
_AUTHORITY = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9_.-]+))(?::([0-9]{0,5}))?")
_DEFAULT_PORTS = {"http": 80, "https": 443}


class Guard:
    """The rules. `hosts` are the names under which the service is reached, besides loopback names.

    `types` are those that a body may have. `is_exempt`: whether a request that acts may have another one,
    because the service knows by something else that no foreign page sends it.
    """

    def __init__(
        self,
        hosts: Iterable[str] = (),
        *,
        types: Collection[str] = (JSON,),
        is_exempt: Callable[[str, Headers], bool] = lambda path, headers: False,
    ) -> None:
        self._hosts = frozenset(host.lower().rstrip(".") for host in hosts if host)
        self._types = types
        self._is_exempt = is_exempt

    def refusal(self, method: str, path: str, headers: Headers) -> Response | None:
        """The problem document that refuses the request; None if it may pass."""
        named = headers.getlist("host")
        if len(named) != 1 or not is_own_host(named[0], self._hosts):
            detail = f"{', '.join(named)[:300]!r} is not a name of this service; BATON_HOSTS lists its names"
            return problem(421, "misdirected-request", detail)
        if method in READING:
            return None
        if not is_same_origin(headers, named[0]):
            return problem(403, "origin-refused", "pages of another origin may not change anything here")
        if not is_typed_or_empty(headers, self._types) and not self._is_exempt(path, headers):
            accepted = " or ".join(self._types)
            detail = f"a body must have the content type {accepted}"
            return problem(415, "unsupported-type", detail, headers={"Accept": ", ".join(self._types)})
        return None


class Guarded:
    """ASGI middleware: `app` behind the guard, except for the paths that are `open_` to all pages."""

    def __init__(self, app: ASGIApp, guard: Guard, open_: Collection[str] = ()) -> None:
        self._app, self._guard, self._open = app, guard, open_

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._app
        if scope["type"] == "http" and scope["path"] not in self._open:
            answer = self._guard.refusal(scope["method"], scope["path"], Headers(scope=scope)) or answer
            send = _with_headers(send)
        await answer(scope, receive, send)


def is_own_host(authority: str, hosts: Iterable[str]) -> bool:
    """Whether a `Host` header (`name[:port]`) is an IP address, a loopback name, or one of `hosts`.

    Any IP address will do: a page can point its name at the service, but the browser still sends that name.
    The port does not matter.

    >>> [is_own_host(host, ["control"]) for host in ("LOCALHOST:8000", "[::1]", "control", "evil.example")]
    [True, True, True, False]
    """
    name, _ = _split(authority)
    if name == "localhost" or name.endswith(".localhost") or name in hosts:
        return True
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(name)
        return True
    return False


def is_same_origin(headers: Headers, authority: str) -> bool:
    """Whether the request comes from a page of this host and port, or not from a page at all.

    The scheme is not compared: behind a proxy that ends TLS, a service does not know its own.
    """
    if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        return False
    return all(_is_at(origin, authority) for origin in headers.getlist("origin"))


def _is_at(origin: str, authority: str) -> bool:
    scheme, _, origin_authority = origin.partition("://")
    default = _DEFAULT_PORTS.get(scheme)
    if default is None:
        return False  # also `null`, which frames without an origin send
    (name, port), (own_name, own_port) = _split(origin_authority), _split(authority)
    return bool(name) and (name, port or default) == (own_name, own_port or default)


def is_typed_or_empty(headers: Headers, accepted: Collection[str]) -> bool:
    """Whether the request has a body of these types, or none: forms, and scripts without permission, cannot
    send JSON.

    A script can send a body without a type, so a missing type does not make it safe.
    """
    types = headers.getlist("content-type")
    if not types:
        return "transfer-encoding" not in headers and headers.get("content-length", "0") == "0"
    return len(types) == 1 and types[0].partition(";")[0].strip().lower() in accepted


def _with_headers(send: Send) -> Send:
    """Adds HEADERS to an answer, except those that it has already."""

    async def send_with(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return send_with


def _split(authority: str) -> tuple[str, int | None]:
    """The name in lower case and the port of `name[:port]`; an empty name if it is not one."""
    found = _AUTHORITY.fullmatch(authority)
    if found is None:
        return "", None
    address, name, port = found.groups("")
    return address or name.lower().rstrip("."), int(port) if port else None
