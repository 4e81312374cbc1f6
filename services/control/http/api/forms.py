"""Which requests to control may have a form as their body: those from its own pages. Used by ../app.py."""

from __future__ import annotations

from typing import Final

from starlette.datastructures import Headers

FORMS: Final = frozenset({"/login", "/logout"})
_CONSOLE = "/console/"
_FORM = "application/x-www-form-urlencoded"


def is_own_form(path: str, headers: Headers) -> bool:
    """Whether the body is a form for the login, or for a page of the console from a browser that names its
    origin.

    The guard has compared the origin; a form without one may come from anywhere.
    """
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    is_of_console = path.startswith(_CONSOLE) and kind == _FORM and bool(headers.getlist("origin"))
    return path in FORMS or is_of_console
