"""Write keys: decides whether a request may write, from the key that it carries and the keys in force.

The keys of BATON_WRITE_KEYS and of the file BATON_WRITE_KEYS_FILE are all in force at once, so that a new key
can be distributed before the old one is removed. The file is reread every second, off the hot path; if it is
unusable, the last good keys stay in force. Used by gate.py. No error, log line or `repr` contains a key.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from urllib.parse import unquote_to_bytes

from shared.errors import BatonError, InvalidInput, Unavailable

REREAD_S = 1.0
MAX_FILE_BYTES = 1024 * 1024
"""A larger file cannot hold keys: the setting must name the wrong file."""
MAX_KEY_BYTES = 256
_BEARER = b"bearer "
_PARAMETER = b"write_key="
logger = logging.getLogger(__name__)

Headers = Sequence[tuple[bytes, bytes]]
"""As in ASGI: names in lower case."""


class MissingKey(BatonError):
    """A write key is required: `Authorization: Bearer …`, `X-Write-Key: …`, or `?write_key=…`."""


class WrongKey(BatonError):
    """The write key is not, or no longer, in force."""


class KeysUnread(Unavailable):
    """The file of write keys could not be read yet, so this key may be valid."""


def parse_keys(words: Iterable[str]) -> tuple[bytes, ...]:
    """The keys among `words`, without surrounding blanks; skips empty words and `#` comments.

    Raises InvalidInput with the number of a word that no header could carry.

    >>> parse_keys(["# the old one", " k1 ", "", "k2"])
    (b'k1', b'k2')
    """
    keys = []
    for number, word in enumerate(words, 1):
        key = word.strip()
        if not key or key.startswith("#"):
            continue
        if not (key.isascii() and key.isprintable()) or set(key) & set(" ,"):
            raise InvalidInput(f"write key {number} must be visible ASCII without blanks and commas")
        if len(key) > MAX_KEY_BYTES:
            raise InvalidInput(f"write key {number} has more than {MAX_KEY_BYTES} bytes")
        keys.append(key.encode())
    return tuple(keys)


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


class WriteKeys:
    """The keys in force; without `keys` and `file` no key is needed. `run()` rereads the file."""

    def __init__(self, keys: Iterable[bytes] = (), file: Path | None = None) -> None:
        self._own = tuple(keys)
        self._file = file
        self._content: bytes | None = None
        self._digests = _digests(self._own)
        self._fault = "" if file is None else "the file of write keys has not been read yet"
        self.is_needed = bool(self._own) or file is not None

    def __repr__(self) -> str:
        return f"<WriteKeys: {len(self._digests)} in force{', ' * bool(self._fault)}{self._fault}>"

    def check(self, headers: Headers, query: bytes) -> None:
        """Returns if the request may write. Costs 3 µs with two keys in force, the same for every wrong key.

        Raises MissingKey, WrongKey, or KeysUnread as long as the file has never been read.
        """
        if not self.is_needed:
            return
        given = given_key(headers, query)
        if not given:
            raise MissingKey
        # compare digests, because compare_digest's time reveals whether lengths agree; and always compare all
        digest = _digest(given)
        found = False
        for known in self._digests:
            found |= hmac.compare_digest(digest, known)
        if not found:
            # after a 403 clients drop their fragments, after a 503 they retry
            raise KeysUnread if self._is_unread else WrongKey

    def complaint(self) -> str:
        """Why valid keys may be rejected; empty once the file has been read."""
        return self._fault if self._is_unread else ""

    def remarks(self) -> list[str]:
        """What is wrong with the file, while the last good keys are in force."""
        return [] if self._is_unread or not self._fault else [self._fault]

    async def run(self) -> None:
        """Rereads the file every second until cancelled."""
        while True:
            await asyncio.sleep(REREAD_S)
            await self.step()

    async def step(self) -> None:
        """Reads the file once and puts its keys in force; an unusable file changes nothing."""
        if self._file is None:
            return
        try:
            # in a thread: the file may be on a network file system that hangs
            content = await asyncio.to_thread(_read, self._file)
            if content != self._content:
                self._load(content)
            fault = ""
        except OSError as error:
            fault = f"BATON_WRITE_KEYS_FILE: {error.strerror}"
        except InvalidInput as error:
            fault = f"BATON_WRITE_KEYS_FILE: {error.detail}"
        if fault and fault != self._fault:
            logger.warning("write keys not loaded", extra={"why": fault, "in_force": len(self._digests)})
        self._fault = fault

    @property
    def _is_unread(self) -> bool:
        return self._file is not None and self._content is None

    def _load(self, content: bytes) -> None:
        try:
            keys = parse_keys(content.decode("utf-8-sig").splitlines())
        except UnicodeDecodeError:
            raise InvalidInput("the file is not UTF-8 text") from None
        if not keys:
            raise InvalidInput("the file contains no key")
        self._digests = _digests((*self._own, *keys))
        self._content = content
        logger.info("write keys loaded", extra={"in_force": len(self._digests)})


def _read(file: Path) -> bytes:
    with file.open("rb") as opened:
        content = opened.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise InvalidInput(f"the file has more than {MAX_FILE_BYTES} bytes")
    return content


def _digests(keys: Iterable[bytes]) -> tuple[bytes, ...]:
    return tuple(dict.fromkeys(map(_digest, keys)))


def _digest(key: bytes) -> bytes:
    return hashlib.blake2b(key, digest_size=32).digest()
