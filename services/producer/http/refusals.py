"""The problem documents that reject a request: which status and headers each error gets, and two lists.

The errors here are those of the gate; shared/service/refusals.py has the table for bodies, and http.py beside
it the one for all others. Used by `door.py` and `gate.py`.
"""

from __future__ import annotations

from fastapi import Response

from services.producer.core.ingest import Rejected
from services.producer.http.access.grants import WrongScope
from services.producer.http.access.keys import MissingKey, WrongKey
from services.producer.http.access.origins import OriginRefused
from shared.errors import BatonError
from shared.service import refusals
from shared.service.http import kind_for, problem

STATUS: dict[type[BatonError], int] = {
    MissingKey: 401,
    WrongKey: 403,
    WrongScope: 403,
    OriginRefused: 403,
}


def refusal(error: BatonError) -> Response:
    """The answer to a request that failed with this error."""
    status = STATUS.get(type(error))
    if status is None:
        return refusals.refusal(error)
    headers = {"WWW-Authenticate": "Bearer"} if isinstance(error, MissingKey) else None
    return problem(status, kind_for(error), error.detail, headers=headers)


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
        headers=refusals.RETRY,
        accepted=accepted,
        unstored=unstored,
        rejected=rejected,
    )
