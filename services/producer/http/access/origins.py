"""Origins: which pages may write, and the headers that say so to browsers (CORS, in the Fetch standard).

Decides from BATON_ALLOWED_ORIGINS and a request's `Origin`; used by gate.py. A beacon is a simple request: it
has no preflight and its answer is not read, so it only needs to be admitted. Cookies are never requested.
A list restrains browsers only: any other client can send any origin (write keys are for those).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from shared.errors import BatonError
from shared.server.answers import Pairs

ANY = "*"
_ORIGIN = re.compile(r"(null|[a-z][a-z0-9+.-]*://(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?)")

_VARY: Pairs = ((b"vary", b"Origin"),)
_EXPOSE: Pairs = ((b"access-control-expose-headers", b"Retry-After"),)
PREFLIGHT: Pairs = (
    (b"access-control-allow-methods", b"POST"),
    (
        b"access-control-allow-headers",
        b"Authorization, Content-Encoding, Content-Type, X-Write-Key",
    ),
    # two hours: the longest that Chromium caches it
    (b"access-control-max-age", b"7200"),
)
"""More headers for the answer to a preflight, if its origin is allowed."""


class OriginRefused(BatonError):
    """Pages from this origin may not write here (BATON_ALLOWED_ORIGINS)."""


def parse_origins(text: str) -> tuple[str, ...]:
    """The origins in a comma-separated list. Raises ValueError for one that no browser would send.

    >>> parse_origins("https://a.example, http://127.0.0.1:8001")
    ('https://a.example', 'http://127.0.0.1:8001')
    """
    origins = tuple(origin for part in text.split(",") if (origin := part.strip()))
    if ANY in origins and len(origins) > 1:
        raise ValueError(f"`{ANY}` must be the only origin")
    for origin in origins:
        if origin != ANY and not _ORIGIN.fullmatch(origin):
            raise ValueError(f"{origin!r} must be scheme://host[:port], in lower case, without a path")
    return origins


class Origins:
    """The headers for each origin, built once; `allowed` is `("*",)` or a possibly empty list of origins."""

    __slots__ = ("_allowed", "_any", "is_restricted")

    def __init__(self, allowed: Sequence[str]) -> None:
        self.is_restricted = ANY not in allowed
        self._any: Pairs = ((b"access-control-allow-origin", b"*"), *_EXPOSE)
        self._allowed: dict[bytes, Pairs] = {
            origin.encode(): ((b"access-control-allow-origin", origin.encode()), *_VARY, *_EXPOSE)
            for origin in allowed
        }

    def __repr__(self) -> str:
        return f"<Origins: {b', '.join(self._allowed).decode() or 'none'}>"

    def headers_for(self, origin: bytes | None) -> Pairs:
        """The headers of every answer to this origin; None means that the request has no origin.

        With a list, answers differ by origin, so caches must distinguish origins: hence `Vary`.
        """
        if not self.is_restricted:
            return () if origin is None else self._any
        return _VARY if origin is None else self._allowed.get(origin, _VARY)

    def check(self, origin: bytes | None) -> None:
        """Returns if requests from this origin (None: from no page) may write. Raises OriginRefused."""
        if self.is_restricted and origin is not None and origin not in self._allowed:
            raise OriginRefused
