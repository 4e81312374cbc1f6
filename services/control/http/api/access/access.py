"""Identifies callers: by a bearer token, by the cookie of a login, or by the machine that they are on.

Without tokens, control serves only its own machine, or everybody if BATON_CONTROL_OPEN says so. Used by
gate.py and ../login.py.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from starlette.requests import HTTPConnection

from services.control.http.api.access.attempts import Attempts
from services.control.http.api.access.caller import ANYBODY, Caller
from services.control.http.api.access.cookie import COOKIE, token_of
from services.control.http.api.access.tokens import Token, Tokens
from shared.errors import BatonError, Unavailable
from shared.service.loopback import is_loopback

_BEARER = "bearer "
_FORWARDED = ("forwarded", "via", "x-forwarded-for", "x-real-ip")
"""Headers of a proxy: it may run on this machine, but its callers need not."""
logger = logging.getLogger(__name__)


class MissingToken(BatonError):
    """Control needs a token: `Authorization: Bearer …`; for `baton` set BATON_TOKEN_FILE or BATON_TOKEN."""


class WrongToken(BatonError):
    """This token is not, or no longer, in force."""


class TokensUnread(Unavailable):
    """The file of tokens could not be read yet, so this token may be valid."""


class ElsewhereRefused(BatonError):
    """Control has no tokens, so it serves only its own machine: set BATON_CONTROL_TOKENS_FILE."""


class Access:
    """The rules for callers. `tokens`: None without a file of tokens; only then does `is_open` count.

    `is_read_only`: refuses everything that acts, for every role. `now_s` is in seconds since 1970.
    """

    def __init__(
        self,
        tokens: Tokens | None = None,
        *,
        is_open: bool = False,
        is_read_only: bool = False,
        attempts: Attempts | None = None,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._tokens = tokens
        self._attempts = attempts or Attempts()
        self.has_tokens = tokens is not None
        self.is_open = is_open and tokens is None
        self.is_read_only = is_read_only
        self.now_s = now_s

    def __repr__(self) -> str:
        return f"<Access: {self._tokens or ('everybody' if self.is_open else 'this machine')}>"

    def caller_for(self, request: HTTPConnection) -> Caller:
        """Who makes the request.

        Raises MissingToken, WrongToken, RateLimited, TokensUnread; without tokens ElsewhereRefused.
        """
        if self._tokens is None:
            if self.is_open or is_local(request):
                return ANYBODY
            raise ElsewhereRefused
        shown = request.headers.get("authorization", "")
        if shown[: len(_BEARER)].lower() == _BEARER:
            return self.token_for(shown[len(_BEARER) :].strip(), request).caller
        cookie = request.cookies.get(COOKIE, "")
        if token := token_of(cookie, self._tokens.named, self.now_s()):
            return token.caller
        raise MissingToken if self._tokens.file.is_read else TokensUnread

    def token_for(self, secret: str, request: HTTPConnection) -> Token:
        """The token in force with this secret. Raises WrongToken, RateLimited, TokensUnread."""
        if self._tokens is None or not self._tokens.file.is_read:
            raise TokensUnread
        token = self._tokens.find(secret.encode())
        if token is None:
            address = request.client.host if request.client else ""
            self._attempts.limit_of(address).admit()
            logger.warning("token refused", extra={"address": address})
            raise WrongToken
        return token

    def complaints(self) -> list[str]:
        """Why all callers are refused: the file of tokens could never be read."""
        return [fault] if self._tokens and (fault := self._tokens.file.complaint()) else []

    def remarks(self) -> list[str]:
        """What is wrong with the file, while the last good tokens are in force."""
        return self._tokens.file.remarks() if self._tokens else []

    async def step(self) -> None:
        """Reads the file of tokens once."""
        if self._tokens:
            await self._tokens.file.step()

    async def run(self) -> None:
        """Rereads the file of tokens until cancelled; returns at once without one."""
        if self._tokens:
            await self._tokens.file.run()


def is_local(request: HTTPConnection) -> bool:
    """Whether the request comes from this machine, and not through a proxy."""
    is_here = request.client is not None and is_loopback(request.client.host)
    return is_here and not any(header in request.headers for header in _FORWARDED)
