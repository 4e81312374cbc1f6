"""The gate behind the guard: admits a request if its caller has the role that it needs (needs.py).

A browser that asks for a page is redirected to the login; all other refusals are problem documents.
"""

from __future__ import annotations

from urllib.parse import quote

from starlette.requests import HTTPConnection
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from services.control.http.api.access.access import Access, ElsewhereRefused, MissingToken, WrongToken
from services.control.http.api.access.caller import Caller, Role, note_caller
from services.control.http.api.access.needs import acts, needed_role
from shared.errors import BatonError
from shared.service.http import kind_for, problem, problem_for
from shared.service.rate_limit import RateLimited

_CHALLENGE = 'Bearer realm="baton"'


class Gate:
    """ASGI middleware; `access` decides who the caller is."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._app
        if scope["type"] == "http":
            answer = self._refusal(HTTPConnection(scope)) or answer
        await answer(scope, receive, send)

    def _refusal(self, request: HTTPConnection) -> ASGIApp | None:
        """The answer that refuses the request; None if it may pass."""
        method, path = request.scope["method"], request.scope["path"]
        needed = needed_role(method, path)
        if needed is None:
            return None
        try:
            caller = self._access.caller_for(request)
        except MissingToken as error:
            if is_for_a_page(request):
                return RedirectResponse(f"/login?next={quote(_place_of(request), safe='/')}", 303)
            return refusal_for(error)
        except BatonError as error:
            return refusal_for(error)
        if self._access.is_read_only and acts(method, path):
            return problem(403, "read-only", "this control is read-only (BATON_READ_ONLY=1)")
        if not caller.may(needed):
            return _role_missing(caller.name, caller.role, needed)
        note_caller(request.scope, caller, lambda: self._is_still(caller, request))
        return None

    def _is_still(self, caller: Caller, request: HTTPConnection) -> bool:
        try:
            return self._access.caller_for(request) == caller
        except BatonError:
            return False


def is_for_a_page(request: HTTPConnection) -> bool:
    """Whether a browser wants to show the answer as a page, and not to put it into one (htmx)."""
    wants_html = "text/html" in request.headers.get("accept", "")
    return request.scope["method"] == "GET" and wants_html and "hx-request" not in request.headers


def refusal_for(error: BatonError) -> ASGIApp:
    """The problem document for a refused caller."""
    match error:
        case WrongToken():
            challenge = f'{_CHALLENGE}, error="invalid_token"'
            return problem(401, kind_for(error), error.detail, headers={"WWW-Authenticate": challenge})
        case MissingToken():
            return problem(401, kind_for(error), error.detail, headers={"WWW-Authenticate": _CHALLENGE})
        case ElsewhereRefused():
            return problem(403, kind_for(error), error.detail)
        case RateLimited():
            headers = {"Retry-After": str(error.retry_after_s)}
            return problem(429, kind_for(error), error.detail, headers=headers)
        case _:
            return problem_for(error)


def _role_missing(name: str, role: Role, needed: Role) -> ASGIApp:
    detail = f"this needs a token with the role `{needed}`; that of `{name}` has `{role}`"
    return problem(403, "role-missing", detail, needed=needed)


def _place_of(request: HTTPConnection) -> str:
    query = request.scope.get("query_string", b"").decode("latin-1")
    return f"{request.url.path}?{query}" if query else request.url.path
