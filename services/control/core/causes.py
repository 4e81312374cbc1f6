"""Who asked for something, why, and whether the same request was made before (`Idempotency-Key`).

Pure. Two callers may use the same key. An operation or run stores its key and a digest of its request, so a
repeated request finds it even after a restart.
"""

from __future__ import annotations

import hashlib

import msgspec

from shared.errors import InvalidInput


class KeyReused(InvalidInput):
    """The `Idempotency-Key` was used for another request."""


class Cause(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who asked, and why. `key`: the `Idempotency-Key` as a digest of it and its sender, "" without one;
    `request`: a digest of what was asked under it.
    """

    who: str = ""
    reason: str = ""
    key: str = ""
    request: str = ""

    def check_same(self, request: str) -> None:
        """Raises KeyReused unless the request is the one that was made under this key."""
        if self.request != request:
            raise KeyReused("this Idempotency-Key was used for another request")


NOBODY = Cause()
"""A schedule, which needs no reason."""


def cause_of(who: str, reason: str, key: str | None, request: object) -> Cause:
    """Who asks for what; `request` is anything that msgspec encodes.

    >>> cause_of("ann", "", "k", [1]) == cause_of("ann", "", "k", [1]), cause_of("bob", "", "k", [1]).key
    (True, '054ea1708ddd')
    """
    if not key:
        return Cause(who=who, reason=reason)
    # as JSON, because a name may hold any character
    place = msgspec.json.encode([who, key])
    return Cause(who=who, reason=reason, key=_digest(place), request=_digest(msgspec.json.encode(request)))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]
