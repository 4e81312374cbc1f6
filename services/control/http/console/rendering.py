"""Draws the console's pages: templates, the files that they load, and the headers that every page carries."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import jinja2
import markupsafe
from fastapi import APIRouter, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse
from fastapi.routing import APIRoute

from services.control.http.api.access.caller import ANYBODY, caller_of
from services.control.http.api.access.cookie import COOKIE
from services.control.http.console import words
from services.control.http.console.assets import Assets
from services.control.live.view.cluster_view import UnknownGroup
from shared.errors import BatonError, Unavailable
from shared.service.http import kind_for, kind_of_status, problem_for

TEMPLATES: Final = Path(__file__).parent / "templates"
HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "same-origin",
    "Vary": "Accept-Encoding",
    "X-Content-Type-Options": "nosniff",
}
PACKED: Final = 6
"""Level of gzip: it makes a page of a thousand streams 15 times smaller, in a few milliseconds."""
VIEWS: Final = (
    ("overview", "Overview", "/"),
    ("ownership", "Ownership", "/console/ownership"),
    ("movements", "Movements", "/console/movements"),
    ("sessions", "Sessions", "/console/sessions"),
    ("jobs", "Jobs", "/console/jobs"),
    ("reports", "Reports", "/console/reports"),
    ("queues", "Queues", "/console/queues"),
)
Failure = BatonError | RequestValidationError | HTTPException
_BAD_ADDRESS: Final = "This address has a mistake."
_HEADINGS: Final = {
    400: _BAD_ADDRESS,
    404: "There is no such page.",
    422: _BAD_ADDRESS,
    503: "Control cannot show this page now.",
}
Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class Pages:
    """Renders templates; everything that they show is escaped. `named`: the group that an alias names.

    `root_path`: what a proxy puts before the paths of all links. `is_open`: control serves everybody, and
    every page says so.
    """

    def __init__(
        self,
        assets: Assets,
        named: Callable[[str], str] = str,
        *,
        root_path: str = "",
        is_open: bool = False,
    ) -> None:
        self.assets = assets
        self._named = named
        self._environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(TEMPLATES),
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
            undefined=jinja2.StrictUndefined,
        )
        self._environment.globals |= {"asset": assets.url, "views": VIEWS, "root": root_path}
        self._environment.globals |= {"is_open": is_open}
        self._environment.filters["commands"] = commands
        for name in (
            "count",
            "short",
            "per_second",
            "size",
            "span",
            "clock",
            "plural",
            "listed",
            "shortened",
        ):
            self._environment.filters[name] = getattr(words, name)

    def __repr__(self) -> str:
        return f"<Pages of {TEMPLATES.name}>"

    def page(self, request: Request, name: str, status: int = 200, **values: Any) -> Response:
        """The page of a template. `has_token`: callers need one; `has_login`: it is behind a cookie."""
        caller = caller_of(request)
        has_token = caller != ANYBODY
        has_login = has_token and COOKIE in request.cookies
        values |= {"caller": caller, "has_token": has_token, "has_login": has_login}
        body = self._environment.get_template(name).render(**values).encode()
        headers = HEADERS
        if "gzip" in request.headers.get("accept-encoding", ""):
            body, headers = gzip.compress(body, PACKED, mtime=0), headers | {"Content-Encoding": "gzip"}
        return Response(body, status, media_type="text/html; charset=utf-8", headers=headers)

    def failed(self, request: Request, error: Failure) -> Response:
        """The page that says why another one cannot be shown, with the status of the API."""
        status, kind, why = _explained(error)
        return self.page(
            request,
            "failed.html",
            status,
            why=why,
            kind=kind,
            heading=_HEADINGS.get(status, "This cannot be done now."),
            tries_again=isinstance(error, Unavailable) and request.method == "GET",
        )

    def _elsewhere(self, request: Request) -> str:
        """The same page of the group that the query names by an alias; "" if it names none."""
        query = dict(request.query_params)
        name = query.get("group", "")
        group = self._named(name)
        return "" if group == name else f"?{urlencode(query | {'group': group})}"

    def router(self) -> APIRouter:
        """A router for pages: browsers get errors as a page, other clients as a problem document."""

        class PageRoute(APIRoute):
            def get_route_handler(route) -> Handler:  # noqa: N805
                handle = super().get_route_handler()

                async def as_page(request: Request) -> Response:
                    try:
                        return await handle(request)
                    except (BatonError, RequestValidationError, HTTPException) as error:
                        if isinstance(error, UnknownGroup) and (there := self._elsewhere(request)):
                            return RedirectResponse(there)
                        if "text/html" not in request.headers.get("accept", ""):
                            raise
                        return self.failed(request, error)

                return as_page

        return APIRouter(include_in_schema=False, route_class=PageRoute)


def _explained(error: Failure) -> tuple[int, str, str]:
    """The status, the kind of the problem, and why."""
    match error:
        case BatonError():
            return problem_for(error).status_code, kind_for(error), reason_of(error)
        case RequestValidationError():
            faults = [f"`{fault['loc'][-1]}`: {fault['msg']}" for fault in error.errors()]
            return 422, "invalid-input", "; ".join(faults)
        case _:
            return error.status_code, kind_of_status(error.status_code), error.detail


def reason_of(error: BatonError) -> str:
    """Why something failed, without the addresses of servers."""
    return error.reason if isinstance(error, Unavailable) else error.detail


def commands(text: str) -> markupsafe.Markup:
    """The text as HTML; what stands in backticks is code.

    >>> commands("Run `baton run lake` <now>.")
    Markup('Run <code>baton run lake</code> &lt;now&gt;.')
    """
    parts = str(markupsafe.escape(text)).split("`")
    marked = (f"<code>{part}</code>" if n % 2 else part for n, part in enumerate(parts))
    return markupsafe.Markup("".join(marked))
