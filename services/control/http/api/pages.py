"""What all lists share: the query parameters that choose a page, common refusals, and a page's JSON."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, TypeVar

import msgspec
from fastapi import Depends, Header, Query, Request, Response, params
from fastapi.dependencies.utils import get_flat_params
from fastapi.exceptions import RequestValidationError

from services.control.core.paging import Listing, PageInvalid
from services.control.http.api.bodies import MAX_BODY_BYTES
from services.control.http.api.openapi import JSON, refuses

MAX_LIMIT = 5000
Row = TypeVar("Row")

Group = Annotated[str, Query(description="the group to look at", max_length=100)]
Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT, description="maximum number of rows")]
Name = Annotated[str, Query(max_length=300)]
AfterName = Annotated[str, Query(max_length=300, description="return only rows that follow this name or id")]

MAX_REASON = 500
Reason = Annotated[str, Query(max_length=MAX_REASON, description="why, in your words; an event keeps it")]
MAX_KEY = 255
IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=MAX_KEY,
        description="names this request: a repeated one starts nothing, and returns what the first one "
        "started. Kept for at least a day, unless a thousand others follow",
    ),
]

Sort = Annotated[
    str,
    Query(max_length=200, description="columns to sort by, like `-lag,owner`; `-` descends, nulls are last"),
]
Next = Annotated[str | None, Query(max_length=4000, description="`next` of the page before this one")]

NextCursor = Annotated[
    str | None, msgspec.Meta(description="as `cursor` it returns the next page; null at the end")
]
StaleMs = Annotated[int, msgspec.Meta(description="age of the oldest reading behind this answer")]

INVALID = refuses(422, "A parameter is invalid; `errors` names each fault")
_TOO_LARGE = f"The body has more than {MAX_BODY_BYTES:,} bytes"
BAD_QUERY = refuses(400, "The query is not UTF-8")
BAD_BODY = refuses(400, "The body or the query is not UTF-8") | refuses(413, _TOO_LARGE)
MISDIRECTED = refuses(421, "The `Host` of the request is not one of control's")
_NO_TOKEN = "The request has no token, or one that is not in force"
_NOT_LET_IN = "The caller lacks the role that this needs, or is on another machine and control has no tokens"
_TOO_MANY = "Requests from this address have shown too many wrong tokens"
REFUSED = refuses(401, _NO_TOKEN) | refuses(403, _NOT_LET_IN) | refuses(429, _TOO_MANY)
GUARDED = refuses(
    403, f"{_NOT_LET_IN}, or control is read-only, or the request comes from a page of another origin"
) | refuses(415, "The request has a body of another type than application/json")
NOT_FOUND = refuses(404, "There is no such group, stream, member, job, run or operation")
UNAVAILABLE = refuses(503, "ZooKeeper or Kafka has not been read yet")


@dataclass(frozen=True, slots=True)
class Paging:
    """How a list is asked for: order, page and length; `Annotated[Paging, Depends()]` in a route."""

    sort: Sort = ""
    cursor: Next = None
    limit: Limit = MAX_LIMIT

    def page(
        self, listing: Listing[Row], rows: Iterable[Row], selected: object = None
    ) -> tuple[Sequence[Row], str | None]:
        """The rows of the page, and its `next`. Raises RequestValidationError."""
        try:
            after = None if self.cursor is None else _decoded(self.cursor)
            page = listing.page(rows, sort=self.sort, after=after, limit=self.limit, selected=selected)
        except PageInvalid as error:
            fault = {"loc": ("query", error.where), "msg": error.detail}
            raise RequestValidationError([fault]) from None
        return page.rows, None if page.next is None else base64.urlsafe_b64encode(page.next).decode()


@dataclass(frozen=True, slots=True)
class ShortPaging(Paging):
    """The same for lists of which one mostly wants the newest rows."""

    limit: Limit = 100


def _decoded(cursor: str) -> bytes:
    try:
        return base64.b64decode(cursor, altchars="-_", validate=True)
    except ValueError:
        return b""


def known_parameters_only(request: Request) -> None:
    """Raises RequestValidationError for a parameter that the route does not have, like a misspelt filter."""
    fields = get_flat_params(request.scope["route"].dependant)
    known = {field.alias for field in fields if isinstance(field.field_info, params.Query)}
    unknown = sorted(set(request.query_params) - known)
    if unknown:
        detail = f"there is no such parameter; there are {', '.join(sorted(known))}"
        raise RequestValidationError([{"loc": ("query", name), "msg": detail} for name in unknown])


LISTED = [Depends(known_parameters_only)]


def joined(
    name: str, rows: Sequence[bytes], stale_ms: int, *, totals: bytes = b"", **more_members: object
) -> Response:
    """The encoded rows as the array `name`, with `totals` (JSON) if the list has them, and other members."""
    more = b',"totals":' + totals if totals else b""
    for member, value in more_members.items():
        more += b',"%b":%b' % (member.encode(), msgspec.json.encode(value))
    body = b'{"%b":[%b]%b,"stale_ms":%d}' % (name.encode(), b",".join(rows), more, stale_ms)
    return Response(body, media_type=JSON)
