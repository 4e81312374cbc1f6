"""The guard in front of control: refuses what a foreign web page can make a visitor's browser send.

A browser reaches control on behalf of any page that it shows, and may send what control trusts: its address,
or a cookie. So three headers decide before anything else sees the request. `Host` stops pages that point a
name of their own at control's address and then read its answers (DNS rebinding). `Origin` and the type of the
body stop forms and scripts of other sites that start or cancel something.

Answers may hold what clients posted. So no cache may store them and no browser may guess that they are pages,
unless a route says otherwise. Used by `app.py`.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
from collections.abc import Iterable

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.control.http.api.openapi import JSON
from shared.service.http import problem

READING = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
"""Methods that change nothing here."""
FORMS = frozenset({"/login", "/logout"})
"""Paths that take a form, from control's own pages."""
HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
"""Of all answers, unless a route sets its own."""
_CONSOLE = "/console/"
_FORM = "application/x-www-form-urlencoded"
_AUTHORITY = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9_.-]+))(?::([0-9]{0,5}))?")
_DEFAULT_PORTS = {"http": 80, "https": 443}


class Guard:
    """ASGI middleware; `hosts` are the names under which control is reached, besides loopback names."""

    def __init__(self, app: ASGIApp, hosts: Iterable[str] = ()) -> None:
        self._app = app
        self._hosts = frozenset(host.lower().rstrip(".") for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._app
        if scope["type"] == "http":
            answer = self._refusal(scope["method"], scope["path"], Headers(scope=scope)) or answer
            send = _with_headers(send)
        await answer(scope, receive, send)

    def _refusal(self, method: str, path: str, headers: Headers) -> ASGIApp | None:
        """The problem document that refuses the request; None if it may pass."""
        named = headers.getlist("host")
        if len(named) != 1 or not is_own_host(named[0], self._hosts):
            detail = f"{', '.join(named)[:300]!r} is not a name of control; BATON_HOSTS lists its names"
            return problem(421, "misdirected-request", detail)
        if method in READING:
            return None
        if not is_same_origin(headers, named[0]):
            return problem(403, "origin-refused", "pages of another origin may not change anything here")
        if path not in FORMS and not is_json_or_empty(headers) and not is_own_form(path, headers):
            detail = f"a body must have the content type {JSON}"
            return problem(415, "unsupported-type", detail, headers={"Accept": JSON})
        return None


def is_own_host(authority: str, hosts: Iterable[str]) -> bool:
    """Whether a `Host` header (`name[:port]`) is an IP address, a loopback name, or one of `hosts`.

    Any IP address will do: a page can point its name at control, but the browser still sends that name. The
    port does not matter.

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


def is_own_form(path: str, headers: Headers) -> bool:
    """Whether the body is a form for a page of the console, from a browser that names its origin.

    `is_same_origin` has compared the origin; a form without one may come from anywhere.
    """
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    return path.startswith(_CONSOLE) and kind == _FORM and bool(headers.getlist("origin"))


def is_same_origin(headers: Headers, authority: str) -> bool:
    """Whether the request comes from a page of this host and port, or not from a page at all.

    The scheme is not compared: behind a proxy that ends TLS, control does not know its own.
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


def is_json_or_empty(headers: Headers) -> bool:
    """Whether the request has a JSON body, or none: forms, and scripts without permission, cannot send JSON.

    A script can send a body without a type, so a missing type does not make it safe.
    """
    types = headers.getlist("content-type")
    if not types:
        return "transfer-encoding" not in headers and headers.get("content-length", "0") == "0"
    return len(types) == 1 and types[0].partition(";")[0].strip().lower() == JSON


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
