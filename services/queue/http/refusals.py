"""The problem documents that refuse a request: what the gate refuses, besides what every service does."""

from __future__ import annotations

from fastapi import Response

from services.queue.http.keys import MissingKey, WrongKey, WrongQueue, WrongScope
from shared.errors import BatonError
from shared.service import refusals
from shared.service.http import kind_for, problem


def refusal(error: BatonError) -> Response:
    """The answer to a request that failed with this error."""
    match error:
        case MissingKey():
            return problem(401, kind_for(error), error.detail, headers={"WWW-Authenticate": "Bearer"})
        case WrongKey() | WrongScope() | WrongQueue():
            return problem(403, kind_for(error), error.detail)
    return refusals.refusal(error)
