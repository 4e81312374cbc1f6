"""The problem documents for requests that are refused by their body or by the load.

The table for all other errors is in http.py. Used by the producer, which adds what its gate refuses, and by
the queue.
"""

from __future__ import annotations

from fastapi import Response

from shared.errors import BatonError
from shared.model.form import UnsupportedType
from shared.model.items import RequestTooLarge, RequestUnreadable
from shared.service.http import RETRY_AFTER_S, kind_for, problem, problem_for
from shared.service.inflight import Overloaded
from shared.service.rate_limit import RateLimited

STATUS: dict[type[BatonError], int] = {
    RequestUnreadable: 400,
    RequestTooLarge: 413,
    UnsupportedType: 415,
    Overloaded: 429,
    RateLimited: 429,
}
RETRY = {"Retry-After": str(RETRY_AFTER_S)}


def refusal(error: BatonError) -> Response:
    """The answer to a request that failed with this error."""
    status = STATUS.get(type(error))
    if status is None:
        return problem_for(error)
    return problem(status, kind_for(error), error.detail, headers=_headers_for(error))


def _headers_for(error: BatonError) -> dict[str, str] | None:
    match error:
        case UnsupportedType():
            return dict([error.accept])
        case Overloaded():
            return RETRY
        case RateLimited():
            return {"Retry-After": str(error.retry_after_s)}
    return None
