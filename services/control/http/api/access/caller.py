"""Who makes a request, and what they may do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec
from starlette.requests import HTTPConnection
from starlette.types import Scope

Role = Literal["view", "operate", "admin"]
"""Each may do what those before it may."""
ROLES: tuple[Role, ...] = ("view", "operate", "admin")


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who makes a request: the name of the token, and its role."""

    name: str
    role: Role

    def may(self, needed: Role) -> bool:
        """Whether the role includes the needed one."""
        return ROLES.index(self.role) >= ROLES.index(needed)


ANYBODY = Caller(name="anybody", role="admin")
"""Every caller of a control without tokens."""


def caller_of(request: HTTPConnection) -> Caller:
    """Who makes this request, as the gate has identified them."""
    found: Caller = request.scope.get("state", {}).get("caller", ANYBODY)
    return found


def is_admitted(request: HTTPConnection) -> bool:
    """Whether the caller would still be let in with what the request showed when it began.

    An answer that goes on for hours asks again: logins expire, and tokens leave their file.
    """
    check: Callable[[], bool] = request.scope.get("state", {}).get("is_admitted", lambda: True)
    return check()


def note_caller(scope: Scope, caller: Caller, is_admitted: Callable[[], bool]) -> None:
    """Lets `caller_of` and `is_admitted` answer for the request."""
    scope.setdefault("state", {}).update(caller=caller, is_admitted=is_admitted)
