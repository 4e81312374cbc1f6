"""What one write key allows: its scopes, its name in `/metrics`, and how many fragments a second.

A key in a page is public, and a marker ends everybody's sessions; so a key may write markers only if it says
so. Used by keys.py, which knows the keys, and by gate.py.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from enum import Enum

from shared.errors import BatonError, InvalidInput
from shared.service.key_file import NAME, check_key

UNNAMED = "unnamed"
"""The name of keys without one, together: a name made from a key would reveal something about it."""
_RATE = re.compile(r"[0-9]{1,7}")


class Scope(Enum):
    """What a request does, and so what its key must allow."""

    WRITE = "write"
    MARK = "mark"


class WrongScope(BatonError):
    """The write key is valid, but it lacks the scope that the request needs."""

    def __init__(self, scope: Scope) -> None:
        what = "fragments" if scope is Scope.WRITE else "markers"
        super().__init__(f"this write key may not write {what}: it lacks the scope `{scope.value}`")


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """One write key with what it allows; `rate` is in fragments per second, None without a limit."""

    key: bytes = field(repr=False)
    scopes: frozenset[Scope] = frozenset({Scope.WRITE})
    name: str = UNNAMED
    rate: float | None = None


@dataclass(slots=True)
class KeyUse:
    """Counts by the names of keys, for `/metrics`; `refused` by name and type of problem."""

    requests: Counter[str] = field(default_factory=Counter)
    fragments: Counter[str] = field(default_factory=Counter)
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)
    rates: dict[str, float] = field(default_factory=dict)
    """Fragments per second that keys with a limit may send."""


def parse_grant(text: str, number: int) -> Grant:
    """The grant in a line of the file or an entry of the setting: `KEY [SCOPES] [name=NAME] [rate=N]`.

    Raises InvalidInput, which names the number of the line but never its text.

    >>> grant = parse_grant("k1 write+mark name=importer rate=500", 1)
    >>> sorted(scope.value for scope in grant.scopes), grant.name, grant.rate
    (['mark', 'write'], 'importer', 500.0)
    >>> parse_grant("k1", 1).scopes
    frozenset({<Scope.WRITE: 'write'>})
    """
    key, *words = text.split()
    check_key(key, f"write key {number}")
    scopes, name, rate = frozenset({Scope.WRITE}), UNNAMED, None
    for word in words:
        what, is_pair, value = word.partition("=")
        if not is_pair and (found := _scopes_in(word)):
            scopes = found
        elif what == "name" and NAME.fullmatch(value):
            name = value
        elif what == "rate" and _RATE.fullmatch(value) and int(value):
            rate = float(value)
        else:
            raise InvalidInput(
                f"write key {number} is followed by a word that is not `write`, `mark`, `write+mark`, "
                f"`name=NAME` (letters, digits, `.`, `_`, `-`) or `rate=N` (fragments per second)"
            )
    return Grant(key=key.encode(), scopes=scopes, name=name, rate=rate)


def _scopes_in(word: str) -> frozenset[Scope]:
    try:
        return frozenset(map(Scope, word.split("+")))
    except ValueError:
        return frozenset()
