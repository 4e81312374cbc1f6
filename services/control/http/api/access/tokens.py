"""Tokens: the secrets by which control knows its callers, from the file BATON_CONTROL_TOKENS_FILE.

A line is `TOKEN ROLE name=NAME`. Several tokens may have one name, so that a new one can be distributed
before the old one is removed. The file is reread every second (`shared/service/key_file.py`). Used by
access.py. No error, log line or `repr` contains a token.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from services.control.http.api.access.caller import ROLES, Caller, Role
from shared.errors import InvalidInput
from shared.service.key_file import NAME, Entries, KeyFile, check_key, digest_of, find_key

MIN_TOKEN_BYTES = 16
"""A shorter token can be guessed."""
_ROLES: dict[str, Role] = {role: role for role in ROLES}


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token and whose it is."""

    secret: bytes = field(repr=False)
    caller: Caller

    @property
    def digest(self) -> bytes:
        """What is compared instead of the token."""
        return digest_of(self.secret)


def parse_token(line: str, number: int) -> Token:
    """The token in line `number` of the file, `TOKEN ROLE name=NAME`.

    Raises InvalidInput, which names the number of the line but never its text.

    >>> parse_token("0123456789abcdef operate name=ann", 1)
    Token(caller=Caller(name='ann', role='operate'))
    """
    secret, *words = line.split()
    check_key(secret, f"token {number}")
    if len(secret) < MIN_TOKEN_BYTES:
        raise InvalidInput(f"token {number} has less than {MIN_TOKEN_BYTES} bytes: it can be guessed")
    role = _ROLES.get(words[0]) if words else None
    name = words[1].removeprefix("name=") if len(words) == 2 and words[1].startswith("name=") else ""
    if role is None or not NAME.fullmatch(name):
        raise InvalidInput(
            f"token {number} must be followed by `view`, `operate` or `admin`, and by `name=NAME` (letters, "
            "digits, `.`, `_`, `-`), and by nothing else"
        )
    return Token(secret=secret.encode(), caller=Caller(name=name, role=role))


class Tokens:
    """The tokens in force; `run()` rereads the file."""

    def __init__(self, file: Path) -> None:
        self.file = KeyFile(file, "BATON_CONTROL_TOKENS_FILE", self._load)
        self._in_force: tuple[Token, ...] = ()

    def __repr__(self) -> str:
        return f"<Tokens: {len(self._in_force)} in force, {self.file}>"

    def find(self, secret: bytes) -> Token | None:
        """The token in force with this secret."""
        return find_key(secret, self._in_force)

    def named(self, name: str) -> list[Token]:
        """The tokens in force with this name."""
        return [token for token in self._in_force if token.caller.name == name]

    def _load(self, entries: Entries) -> dict[str, int]:
        self._in_force = tuple(parse_token(line, number) for number, line in entries)
        return {"in_force": len(self._in_force)}
