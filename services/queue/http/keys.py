"""Who may do what with which queues: keys in a file, each with scopes, and perhaps names of queues.

`enqueue` puts items, `work` leases and settles them, `manage` does the rest, and looks at items without a
lease; any key may see how a queue is. A key with names is limited to these queues and their dead letters, and
sees no list. Without the file everybody may do everything, as with producers.
Health, metrics and documentation need no key. No error, log line or `repr` contains a key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from starlette.datastructures import Headers

from shared.errors import BatonError, InvalidInput, Unavailable
from shared.model.names import DEAD, is_queue_name
from shared.service.key_file import Entries, OptionalKeyFile, check_key, digest_of, find_key

QUEUES = "/queues"
_BEARER = "bearer "


class Scope(Enum):
    """What a request does, and so what its key must allow."""

    ENQUEUE = "enqueue"
    WORK = "work"
    MANAGE = "manage"


_OF_ROUTE = {
    "items": Scope.ENQUEUE,
    **dict.fromkeys(("lease", "ack", "release", "reject", "extend"), Scope.WORK),
}


class MissingKey(BatonError):
    """A key is required: `Authorization: Bearer …`."""


class WrongKey(BatonError):
    """The key is not, or no longer, in force."""


class WrongScope(BatonError):
    """The key is valid, but it lacks the scope that the request needs."""

    def __init__(self, scope: Scope) -> None:
        super().__init__(f"this key lacks the scope `{scope.value}`")


class WrongQueue(BatonError):
    """This key is limited to other queues."""


class KeysUnread(Unavailable):
    """The file of keys could not be read yet, so this key may be valid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """One key with what it allows. `queues`: None if it is for all."""

    digest: bytes = field(repr=False)
    scopes: frozenset[Scope]
    queues: frozenset[str] | None = None


def parse_grant(text: str, number: int) -> Grant:
    """The grant in a line of the file: `KEY SCOPES` or `KEY SCOPES QUEUES`.

    Raises InvalidInput, which names the number of the line but never its text.

    >>> sorted(scope.value for scope in parse_grant("k1 enqueue+work", 1).scopes)
    ['enqueue', 'work']
    >>> sorted(parse_grant("k1 work mail,pay", 1).queues)
    ['mail', 'pay']
    """
    key, *words = text.split()
    check_key(key, f"queue key {number}")
    try:
        scopes, *rest = words
        digest, allowed = digest_of(key.encode()), frozenset(map(Scope, scopes.split("+")))
    except ValueError:
        raise InvalidInput(
            f"queue key {number} must be followed by `enqueue`, `work` or `manage`, or several of them with "
            "`+` between them"
        ) from None
    if not rest:
        return Grant(digest=digest, scopes=allowed)
    queues = frozenset(rest[0].split(","))
    if len(rest) > 1 or not all(map(is_queue_name, queues)):
        raise InvalidInput(f"queue key {number} may end with names of queues, with `,` between them")
    return Grant(digest=digest, scopes=allowed, queues=queues)


def scope_of(method: str, path: str) -> Scope | None:
    """The scope that a request needs; None if any key may make it.

    >>> [scope_of("POST", f"/queues/q/{what}") for what in ("items", "ack", "purge")]
    [<Scope.ENQUEUE: 'enqueue'>, <Scope.WORK: 'work'>, <Scope.MANAGE: 'manage'>]
    >>> scope_of("GET", "/queues/q"), scope_of("GET", "/queues/q/items")
    (None, <Scope.MANAGE: 'manage'>)
    """
    if method in ("GET", "HEAD"):
        # what lies below a queue are its items, with their data
        return Scope.MANAGE if path.count("/") > 2 else None
    # by the last part alone: a path that no route has needs the most
    return _OF_ROUTE.get(path.rpartition("/")[2], Scope.MANAGE) if path.count("/") == 3 else Scope.MANAGE


class QueueKeys(OptionalKeyFile):
    """The keys in force; without a file none is needed. `run()` rereads it."""

    def __init__(self, file: Path | None = None) -> None:
        super().__init__(file, "BATON_QUEUE_KEYS_FILE", self._load)
        self._grants: Sequence[Grant] = ()

    def __repr__(self) -> str:
        return f"<QueueKeys: {len(self._grants)} in force, {self._file or 'no file'}>"

    def check(self, method: str, path: str, headers: Headers) -> Grant | None:
        """The grant by which the request may be made; None if it needs none.

        Raises MissingKey, WrongKey, WrongScope, WrongQueue or KeysUnread if it may not be made.
        """
        if self._file is None or not (path == QUEUES or path.startswith(f"{QUEUES}/")):
            return None
        given = headers.get("authorization", "")
        if given[: len(_BEARER)].lower() != _BEARER:
            raise MissingKey
        if not self._file.is_read:
            raise KeysUnread
        found = find_key(given[len(_BEARER) :].strip().encode(), self._grants)
        if found is None:
            raise WrongKey
        scope = scope_of(method, path)
        if scope is not None and scope not in found.scopes:
            raise WrongScope(scope)
        if found.queues is not None:
            _, _, name, *_ = [*path.split("/"), ""]
            if name.removesuffix(DEAD) not in found.queues:
                raise WrongQueue
        return found

    def _load(self, entries: Entries) -> dict[str, int]:
        self._grants = tuple(parse_grant(line, number) for number, line in entries)
        return {"in_force": len(self._grants)}
