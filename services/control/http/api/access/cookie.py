"""The cookie that a browser gets for a token: `EXPIRES.NAME.MAC`. Pure; used by access.py and ../login.py.

It is not the token, and nothing can be computed from it. Its MAC has a key derived from the token: the cookie
ends when the token leaves the file, has the role that the token has now, and survives a restart of control,
which stores nothing about it.
"""

from __future__ import annotations

import base64
import hmac
import re
from collections.abc import Callable, Iterable

from services.control.http.api.access.tokens import Token

COOKIE = "baton"
LASTS_S = 12 * 3600
"""A working day."""
_FORM = re.compile(r"([0-9]{1,12})\.([A-Za-z0-9._-]{1,64})\.([A-Za-z0-9_-]{43})")
_PURPOSE = b"cookie of baton's control"


def cookie_for(token: Token, now_s: float) -> str:
    """The cookie for the bearer of this token; `now_s` is in seconds since 1970."""
    expires_s = int(now_s) + LASTS_S
    return f"{expires_s}.{token.caller.name}.{_mac(token, expires_s)}"


def token_of(cookie: str, named: Callable[[str], Iterable[Token]], now_s: float) -> Token | None:
    """The token for which the cookie was made, if the cookie is genuine and has not expired.

    `named` returns the tokens in force with a name.
    """
    found = _FORM.fullmatch(cookie)
    if found is None or int(found[1]) <= now_s:
        return None
    expires_s, name, mac = int(found[1]), found[2], found[3]
    genuine = (token for token in named(name) if hmac.compare_digest(_mac(token, expires_s), mac))
    return next(genuine, None)


def _mac(token: Token, expires_s: int) -> str:
    key = hmac.digest(token.secret, _PURPOSE, "sha256")
    mac = hmac.digest(key, f"{expires_s}.{token.caller.name}".encode(), "sha256")
    return base64.urlsafe_b64encode(mac).rstrip(b"=").decode()
