"""`/login`, `/logout`, `/me`: how a browser shows a token, and what control knows about its caller.

The page is a plain form without scripts. A login sets a cookie that pages of other sites cannot send
(SameSite=Strict) and scripts cannot read (HttpOnly). Control stores nothing about it (`access/cookie.py`).
"""

from __future__ import annotations

import html
import re
from typing import Annotated, NamedTuple
from urllib.parse import parse_qs

import msgspec
from fastapi import APIRouter, Query, Request, Response
from starlette.responses import HTMLResponse, RedirectResponse

from services.control.http.api.access.access import Access, TokensUnread, WrongToken
from services.control.http.api.access.caller import Role, caller_of
from services.control.http.api.access.cookie import COOKIE, LASTS_S, cookie_for
from services.control.http.api.bodies import bounded_body
from services.control.http.api.openapi import answers, encoded
from shared.service.rate_limit import RateLimited

HOME = "/"
"""Where a login leads that was not sent from a page."""
MAX_FORM_BYTES = 8192
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
_OWN_PATH = re.compile(r"/(?![/\\])[!-\[\]-~]*")
"""Visible ASCII without a backslash: browsers drop tabs and line ends, and read `\\` as `/`."""


class Me(msgspec.Struct, frozen=True, kw_only=True):
    """Who the caller is, and what control allows."""

    name: Annotated[str, msgspec.Meta(description="of the token; `anybody` if control has no tokens")]
    role: Role
    read_only: Annotated[bool, msgspec.Meta(description="control refuses everything that acts")]
    open: Annotated[
        bool, msgspec.Meta(description="control has no tokens and serves everybody who reaches it")
    ]


ANSWERED = (Me,)


class Look(NamedTuple):
    """Paths of the files that the login page loads, and what a proxy puts before all paths."""

    style: str
    icon: str
    root_path: str = ""


def access_routes(access: Access, look: Look) -> APIRouter:
    """The routes over `access`; the login page loads the files of `look`."""
    routes = APIRouter(tags=["access"])

    @routes.get("/me", summary="Show who the caller is", responses=answers(Me))
    async def me(request: Request) -> Response:
        caller = caller_of(request)
        return encoded(
            Me(name=caller.name, role=caller.role, read_only=access.is_read_only, open=access.is_open)
        )

    @routes.get("/login", include_in_schema=False)
    async def form(next_: Annotated[str, Query(alias="next")] = HOME) -> Response:
        return login_page(next_, look=look) if access.has_tokens else RedirectResponse(own_path(next_), 303)

    @routes.post("/login", include_in_schema=False)
    async def log_in(request: Request) -> Response:
        fields = await _form_of(request)
        place = own_path(fields.get("next", HOME))
        if not access.has_tokens:
            return RedirectResponse(place, 303)
        try:
            token = access.token_for(fields.get("token", ""), request)
        except WrongToken as error:
            return login_page(place, error.detail, 403, look=look)
        except RateLimited as error:
            return login_page(place, error.detail, 429, look=look, retry_after_s=error.retry_after_s)
        except TokensUnread as error:
            return login_page(place, error.detail, 503, look=look, retry_after_s=1)
        answer = RedirectResponse(place, 303)
        _set_cookie(answer, request, cookie_for(token, access.now_s()), LASTS_S, look)
        return answer

    @routes.post("/logout", include_in_schema=False)
    async def log_out(request: Request) -> Response:
        answer = RedirectResponse("/login", 303)
        _set_cookie(answer, request, "", 0, look)
        return answer

    return routes


def own_path(place: str) -> str:
    """The place if it is one of control, else `HOME`: a link must not lead from the login to another site.

    >>> [own_path(place) for place in ("/streams?group=a", "//evil.example", "https://evil.example", "")]
    ['/streams?group=a', '/', '/', '/']
    """
    return place if _OWN_PATH.fullmatch(place) else HOME


def login_page(
    place: str, fault: str = "", status: int = 200, *, look: Look, retry_after_s: int | None = None
) -> Response:
    """The form, which leads to `place` after a login; above it, what was wrong with the last try."""
    alert = f'<p role="alert">{html.escape(fault)}</p>' if fault else ""
    page = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Log in · Baton</title>
<link rel="icon" href="{look.icon}" type="image/svg+xml">
<link rel="stylesheet" href="{look.style}">
</head>
<body>
<main class="login">
<h1>Baton</h1>
{alert}
<form method="post" action="{look.root_path}/login">
<input type="hidden" name="next" value="{html.escape(own_path(place))}">
<label class="field">Token
<input id="token" name="token" type="password" autocomplete="current-password" required autofocus></label>
<button class="primary">Log in</button>
</form>
</main>
</body>
</html>
"""
    headers = {} if retry_after_s is None else {"Retry-After": str(retry_after_s)}
    return HTMLResponse(page, status, _HEADERS | headers)


def _set_cookie(answer: Response, request: Request, cookie: str, lasts_s: int, look: Look) -> None:
    answer.set_cookie(
        COOKIE,
        cookie,
        max_age=lasts_s,
        path=look.root_path or "/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )


async def _form_of(request: Request) -> dict[str, str]:
    """The fields of the form; the first of each name. Raises HTTPException (413)."""
    body = await bounded_body(request, MAX_FORM_BYTES)
    return {name: values[0] for name, values in parse_qs(body.decode("utf-8", "replace")).items()}
