"""Write keys: decides whether a request may write, from the key that it carries and the keys in force.

What a key allows stands beside it (grants.py).

The keys of BATON_WRITE_KEYS and of the file BATON_WRITE_KEYS_FILE are all in force at once, so that a new key
can be distributed before the old one is removed. The file is reread every second, off the hot path; if it is
unusable, the last good keys stay in force. Used by gate.py. No error, log line or `repr` contains a key.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from urllib.parse import unquote_to_bytes

from services.producer.http.access.grants import Grant, KeyUse, Scope, WrongScope, parse_grant
from shared.errors import BatonError, Unavailable
from shared.service.http import kind_for
from shared.service.key_file import Entries, OptionalKeyFile, digest_of, entries_of, find_key
from shared.service.rate_limit import RateLimit, RateLimited

_BEARER = b"bearer "
_PARAMETER = b"write_key="

Headers = Sequence[tuple[bytes, bytes]]
"""As in ASGI: names in lower case."""


class MissingKey(BatonError):
    """A write key is required: `Authorization: Bearer …`, `X-Write-Key: …`, or `?write_key=…`."""


class WrongKey(BatonError):
    """The write key is not, or no longer, in force."""


class KeysUnread(Unavailable):
    """The file of write keys could not be read yet, so this key may be valid."""


def parse_keys(lines: Iterable[str]) -> tuple[Grant, ...]:
    """The keys in `lines`, each with what it allows; skips empty lines and `#` comments.

    Raises InvalidInput with the number of a line that is not `KEY [SCOPES] [name=NAME] [rate=N]`.

    >>> [grant.key for grant in parse_keys(["# the old one", " k1 ", "", "k2 mark"])]
    [b'k1', b'k2']
    """
    return _grants_in(entries_of(lines))


def _grants_in(entries: Entries) -> tuple[Grant, ...]:
    return tuple(parse_grant(line, number) for number, line in entries)


def given_key(headers: Headers, query: bytes) -> bytes | None:
    """The key of a request, from `Authorization: Bearer`, else `X-Write-Key`, else `?write_key=`.

    >>> given_key([(b"authorization", b"Bearer k1")], b"write_key=k2")
    b'k1'
    >>> given_key([(b"authorization", b"Basic eDp5")], b"v=1&write_key=k%2B2")
    b'k+2'
    """
    own = None
    for name, value in headers:
        if name == b"authorization" and value[: len(_BEARER)].lower() == _BEARER:
            return value[len(_BEARER) :].strip()
        if name == b"x-write-key" and own is None:
            own = value.strip()
    if own is not None or _PARAMETER not in query:
        return own
    parameters = (part for part in query.split(b"&") if part.startswith(_PARAMETER))
    first = next(parameters, None)
    return None if first is None else unquote_to_bytes(first[len(_PARAMETER) :])


class WriteKey:
    """A key in force, with what is left of its rate."""

    __slots__ = ("_use", "digest", "grant", "limit")

    def __init__(self, grant: Grant, use: KeyUse) -> None:
        self.grant = grant
        self.digest = digest_of(grant.key)
        self.limit = None if grant.rate is None else RateLimit("the write key", grant.rate)
        self._use = use

    def __repr__(self) -> str:
        return f"<WriteKey {self.grant.name}>"

    def admit(self, scope: Scope) -> None:
        """Counts a request that may do this. Raises WrongScope or RateLimited."""
        if scope not in self.grant.scopes:
            raise WrongScope(scope)
        if self.limit is not None:
            self.limit.admit()
        self._use.requests[self.grant.name] += 1

    def count(self, fragments: int) -> None:
        """Counts the fragments of an admitted request, accepted or not."""
        self._use.fragments[self.grant.name] += fragments
        if self.limit is not None and fragments > 1:
            self.limit.take(fragments - 1)


class WriteKeys(OptionalKeyFile):
    """The keys in force; without `keys` and `file` no key is needed. `run()` rereads the file.

    Each producer admits the whole rate of a key. `use` counts by the keys' names.
    """

    def __init__(self, keys: Iterable[Grant] = (), file: Path | None = None) -> None:
        self._own = tuple(keys)
        super().__init__(file, "BATON_WRITE_KEYS_FILE", self._load)
        self.use = KeyUse()
        self._in_force: dict[bytes, WriteKey] = {}
        self._writers = 1
        self._put_in_force(self._own)
        self.is_needed = bool(self._own) or file is not None

    def __repr__(self) -> str:
        return f"<WriteKeys: {len(self._in_force)} in force, {self._file or 'no file'}>"

    def check(self, headers: Headers, query: bytes, scope: Scope = Scope.WRITE) -> WriteKey | None:
        """The key of a request that may do this; None if no key is needed.

        Costs 3 µs with two keys in force, the same for every wrong key. Raises MissingKey, WrongKey,
        WrongScope, RateLimited, or KeysUnread as long as the file, which may allow it, has never been read.
        """
        if not self.is_needed:
            return None
        given = given_key(headers, query)
        if not given:
            raise MissingKey
        found = find_key(given, self._in_force.values())
        if found is None:
            # after a 403 clients drop their fragments, after a 503 they retry
            raise KeysUnread if self._is_unread else WrongKey
        try:
            found.admit(scope)
        except (WrongScope, RateLimited) as error:
            self.use.refused[found.grant.name, kind_for(error)] += 1
            if self._is_unread and isinstance(error, WrongScope):
                raise KeysUnread from None
            raise
        return found

    def writers(self) -> int:
        """The number of names of keys that may write fragments; 1 without keys, or while none is known."""
        return self._writers

    @property
    def _is_unread(self) -> bool:
        return self._file is not None and not self._file.is_read

    def _load(self, entries: Entries) -> dict[str, int]:
        self._put_in_force((*self._own, *_grants_in(entries)))
        may_mark = sum(Scope.MARK in key.grant.scopes for key in self._in_force.values())
        return {"in_force": len(self._in_force), "may_mark": may_mark}

    def _put_in_force(self, grants: Iterable[Grant]) -> None:
        before, self._in_force = self._in_force, {}
        for grant in grants:
            digest = digest_of(grant.key)
            if digest in self._in_force:  # it stands in the setting and in the file: the first line counts
                continue
            key = before.get(digest)
            # a key that stays keeps what is left of its rate
            is_same = key is not None and key.grant == grant
            self._in_force[digest] = key if key and is_same else WriteKey(grant, self.use)
        may_write = (key.grant for key in self._in_force.values() if Scope.WRITE in key.grant.scopes)
        self._writers = max(len({grant.name for grant in may_write}), 1)
        self.use.rates.clear()
        for key in self._in_force.values():
            if key.limit is not None:
                name = key.grant.name
                self.use.rates[name] = self.use.rates.get(name, 0.0) + key.limit.rate
