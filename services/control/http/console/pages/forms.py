"""What the console's forms send, and the page that says why something was refused."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl

from fastapi import HTTPException, Request, Response
from starlette.responses import RedirectResponse

from services.control.http.api.bodies import bounded_body
from services.control.http.console.rendering import HEADERS, Pages, reason_of
from shared.errors import BatonError, Conflict
from shared.service.http import kind_for, problem_for


async def read_form(request: Request) -> dict[str, str]:
    """The fields that were filled in, without spaces around them. Raises HTTPException (400, 413)."""
    body = await bounded_body(request)
    try:
        fields = parse_qsl(body.decode(), errors="strict")
    except UnicodeDecodeError:
        raise HTTPException(400, "the form is not UTF-8") from None
    return {name: value.strip() for name, value in fields if value.strip()}


def led_to(path: str) -> Response:
    """Leads a browser from what it has sent to the page that shows it."""
    return RedirectResponse(path, 303, headers=HEADERS)


def related_to(error: BatonError) -> tuple[str, str] | None:
    """What is in the way, and its page: a run or an operation."""
    members = error.members if isinstance(error, Conflict) else {}
    return next(
        (
            (f"{name.capitalize()} {found}", f"/console/{name}s/{found}")
            for name, found in members.items()
            if name in ("run", "operation")
        ),
        None,
    )


def refused(
    pages: Pages, request: Request, error: BatonError, common: dict[str, Any], *, what: str, back: str = ""
) -> Response:
    """The page that says why `what` was refused, with the status of the API. `back`: where to try again."""
    problem = problem_for(error)
    return pages.page(
        request,
        "refused.html",
        problem.status_code,
        **common,
        what=what,
        why=reason_of(error),
        kind=kind_for(error),
        related=related_to(error),
        back=back,
    )
