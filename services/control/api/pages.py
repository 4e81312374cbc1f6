"""What all lists share: the query parameters that choose a page, common refusals, and a page's JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
from fastapi import Query, Response

from services.control.api.openapi import JSON, refuses

MAX_LIMIT = 5000

Group = Annotated[str, Query(description="the group to look at", max_length=100)]
Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT, description="maximum number of rows")]
AfterName = Annotated[str, Query(max_length=300, description="return only rows that follow this name or id")]

StaleMs = Annotated[int, msgspec.Meta(description="age of the oldest reading behind this answer")]

INVALID = refuses(422, "A parameter is invalid; `errors` names each fault")
BAD_BODY = refuses(400, "The body is not UTF-8")
MISDIRECTED = refuses(421, "The `Host` of the request is not one of control's")
_NO_TOKEN = "Control has tokens, and the request shows none that is in force"
_NOT_LET_IN = "The caller lacks the role that this needs, or is on another machine and control has no tokens"
REFUSED = refuses(401, _NO_TOKEN) | refuses(403, _NOT_LET_IN)
GUARDED = refuses(
    403, f"{_NOT_LET_IN}, or control is read-only, or the request comes from a page of another origin"
) | refuses(415, "The request has a body of another type than application/json")
NOT_FOUND = refuses(404, "There is no such group, stream, member, job, run or operation")
UNAVAILABLE = refuses(503, "ZooKeeper or Kafka has not been read yet")


def joined(name: str, rows: Sequence[bytes], stale_ms: int, *, totals: bytes = b"") -> Response:
    """The encoded rows as the array `name`, with `totals` (JSON) if the list has them."""
    more = b',"totals":' + totals if totals else b""
    body = b'{"%b":[%b]%b,"stale_ms":%d}' % (name.encode(), b",".join(rows), more, stale_ms)
    return Response(body, media_type=JSON)
