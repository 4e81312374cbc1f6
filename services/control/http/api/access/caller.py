"""Who makes a request, and what they may do."""

from __future__ import annotations

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


def note_caller(scope: Scope, caller: Caller) -> None:
    """Lets `caller_of` find the caller of the request."""
    scope.setdefault("state", {})["caller"] = caller
