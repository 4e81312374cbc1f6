"""The problem documents that reject a request: which status and headers each error gets, and two lists.

The errors here belong to `POST /fragments` (and the gate's also to `POST /markers`); the table for all other
errors is in shared/service/http.py. Used by `door.py` and `gate.py`.
"""

from __future__ import annotations

from fastapi import Response

from services.producer.core.form import UnsupportedType
from services.producer.core.ingest import Rejected
from services.producer.core.items import RequestTooLarge, RequestUnreadable
from services.producer.http.access.grants import WrongScope
from services.producer.http.access.keys import MissingKey, WrongKey
from services.producer.http.access.origins import OriginRefused
from services.producer.http.protocol.limits import Overloaded
from shared.errors import BatonError
from shared.service.http import RETRY_AFTER_S, kind_for, problem, problem_for
from shared.service.rate_limit import RateLimited

STATUS: dict[type[BatonError], int] = {
    RequestUnreadable: 400,
    MissingKey: 401,
    WrongKey: 403,
    WrongScope: 403,
    OriginRefused: 403,
    RequestTooLarge: 413,
    UnsupportedType: 415,
    Overloaded: 429,
    RateLimited: 429,
}
_RETRY = {"Retry-After": str(RETRY_AFTER_S)}


def refusal(error: BatonError) -> Response:
    """The answer to a request that failed with this error."""
    status = STATUS.get(type(error))
    if status is None:
        return problem_for(error)
    return problem(status, kind_for(error), error.detail, headers=_headers_for(error))


def _headers_for(error: BatonError) -> dict[str, str] | None:
    match error:
        case MissingKey():
            return {"WWW-Authenticate": "Bearer"}
        case UnsupportedType():
            return dict([error.accept])
        case Overloaded():
            return _RETRY
        case RateLimited():
            return {"Retry-After": str(error.retry_after_s)}
    return None


def all_rejected(rejected: list[Rejected]) -> Response:
    """422: the request is readable, but none of its fragments is acceptable."""
    count = len(rejected)
    detail = (
        "the fragment is not acceptable" if count == 1 else f"none of the {count} fragments is acceptable"
    )
    return problem(422, "fragments-rejected", detail, accepted=0, rejected=rejected)


def partly_stored(count: int, unstored: list[int], rejected: list[Rejected]) -> Response:
    """503: Kafka acknowledged `count` acceptable fragments except the `unstored`, which may be sent again."""
    accepted = count - len(unstored)
    return problem(
        503,
        "kafka-unavailable",
        f"Kafka acknowledged only {accepted} of {count} fragments in time",
        headers=_RETRY,
        accepted=accepted,
        unstored=unstored,
        rejected=rejected,
    )
