"""Origins: which pages may write, and which headers tell their browsers so (CORS, in the Fetch standard).

Decided from BATON_ALLOWED_ORIGINS and a request's `Origin`; used by gate.py. Beacons are simple requests,
sent without a preflight, and nobody reads their answer: they need none of this but to be let in. Cookies
are never asked for. A list is no lock: who is not a browser names any origin (write keys are for that).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from shared.errors import BatonError

ANY = "*"
_ORIGIN = re.compile(r"(null|[a-z][a-z0-9+.-]*://(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?)")

Pairs = tuple[tuple[bytes, bytes], ...]
"""Headers as ASGI sends them."""
_VARY: Pairs = ((b"vary", b"Origin"),)
_EXPOSE: Pairs = ((b"access-control-expose-headers", b"Retry-After"),)
PREFLIGHT: Pairs = (
    (b"access-control-allow-methods", b"POST"),
    (
        b"access-control-allow-headers",
        b"Authorization, Content-Encoding, Content-Type, X-Write-Key",
    ),
    # two hours: the most for which Chromium remembers it
    (b"access-control-max-age", b"7200"),
)
"""What a preflight is told besides, where the origin is allowed."""


class OriginRefused(BatonError):
    """Pages of this origin may not write here (BATON_ALLOWED_ORIGINS)."""


def parse_origins(text: str) -> tuple[str, ...]:
    """The origins of a comma list. Raises ValueError that names one which no browser would send.

    >>> parse_origins("https://a.example, http://127.0.0.1:8001")
    ('https://a.example', 'http://127.0.0.1:8001')
    """
    origins = tuple(origin for part in text.split(",") if (origin := part.strip()))
    if ANY in origins and len(origins) > 1:
        raise ValueError(f"`{ANY}` stands alone")
    for origin in origins:
        if origin != ANY and not _ORIGIN.fullmatch(origin):
            raise ValueError(f"{origin!r} is no origin: scheme://host[:port], in lower case, without a path")
    return origins


class Origins:
    """The headers of each origin, made once; `allowed` is `("*",)`, or the list of origins, maybe empty."""

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
        """What every answer to this origin carries (None: the request named none).

        A cache must tell origins apart exactly where answers differ by them, so `Vary` goes with a list.
        """
        if not self.is_restricted:
            return () if origin is None else self._any
        return _VARY if origin is None else self._allowed.get(origin, _VARY)

    def check(self, origin: bytes | None) -> None:
        """Returns when requests of this origin, or of none, may write. Raises OriginRefused."""
        if self.is_restricted and origin is not None and origin not in self._allowed:
            raise OriginRefused
