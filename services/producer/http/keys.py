"""Write keys: who may write, decided from what a request says and from the keys in force.

Keys come from BATON_WRITE_KEYS and from the file BATON_WRITE_KEYS_FILE, all of them in force at once, so
that a new one is spread before the old one goes. The file is read again every second, off the hot path; one
that is of no use leaves the last good keys in force. Used by gate.py; no key ever stands in an error, a log
line or a `repr`.
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
"""A larger file is not one of keys: somebody has named another one."""
MAX_KEY_BYTES = 256
_BEARER = b"bearer "
_PARAMETER = b"write_key="
logger = logging.getLogger(__name__)

Headers = Sequence[tuple[bytes, bytes]]
"""As ASGI has them: names in lower case."""


class MissingKey(BatonError):
    """A write key is needed: `Authorization: Bearer …`, `X-Write-Key: …`, or `?write_key=…`."""


class WrongKey(BatonError):
    """The write key is not, or no longer, one of those in force."""


class KeysUnread(Unavailable):
    """The file of write keys could not be read yet, so this key may be right."""


def parse_keys(words: Iterable[str]) -> tuple[bytes, ...]:
    """The keys among `words`; surrounding blanks, empty words and `#` comments are left out.

    Raises InvalidInput, by the word's number, for one that no header could carry.

    >>> parse_keys(["# the old one", " k1 ", "", "k2"])
    (b'k1', b'k2')
    """
    keys = []
    for number, word in enumerate(words, 1):
        key = word.strip()
        if not key or key.startswith("#"):
            continue
        if not (key.isascii() and key.isprintable()) or set(key) & set(" ,"):
            raise InvalidInput(f"number {number} is no write key: visible ASCII without blanks and commas")
        if len(key) > MAX_KEY_BYTES:
            raise InvalidInput(f"number {number} is no write key: more than {MAX_KEY_BYTES} bytes")
        keys.append(key.encode())
    return tuple(keys)


def given_key(headers: Headers, query: bytes) -> bytes | None:
    """The key that a request gives: of `Authorization: Bearer`, `X-Write-Key`, `?write_key=` the first.

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
    """The keys in force; with neither `keys` nor `file` none is needed. `run()` follows the file."""

    def __init__(self, keys: Iterable[bytes] = (), file: Path | None = None) -> None:
        self._own = tuple(keys)
        self._file = file
        self._content: bytes | None = None
        self._digests = _digests(self._own)
        self._fault = "" if file is None else "the file of write keys was not read yet"
        self.is_needed = bool(self._own) or file is not None

    def __repr__(self) -> str:
        return f"<WriteKeys: {len(self._digests)} in force{', ' * bool(self._fault)}{self._fault}>"

    def check(self, headers: Headers, query: bytes) -> None:
        """Returns when the request may write: 3 µs with two keys in force, as long for every wrong key.

        Raises MissingKey, WrongKey, or KeysUnread while the file was never read.
        """
        if not self.is_needed:
            return
        given = given_key(headers, query)
        if not given:
            raise MissingKey
        # digests, because compare_digest tells by its time whether the lengths agree; and every one of them
        digest = _digest(given)
        found = False
        for known in self._digests:
            found |= hmac.compare_digest(digest, known)
        if not found:
            raise KeysUnread if self._is_blind else WrongKey

    def complaint(self) -> str:
        """Why keys that may be right are refused; empty once the file was read."""
        return self._fault if self._is_blind else ""

    def remarks(self) -> list[str]:
        """What is wrong with the file while the last good keys stay in force."""
        return [] if self._is_blind or not self._fault else [self._fault]

    async def run(self) -> None:
        """Reads the file again every second, for ever."""
        while True:
            await asyncio.sleep(REREAD_S)
            await self.step()

    async def step(self) -> None:
        """Reads the file once; what it holds is in force from now on, unless it is of no use."""
        if self._file is None:
            return
        try:
            content = await asyncio.to_thread(_read, self._file)
            if content != self._content:
                self._take(content)
            fault = ""
        except OSError as error:
            fault = f"BATON_WRITE_KEYS_FILE: {error.strerror}"
        except InvalidInput as error:
            fault = f"BATON_WRITE_KEYS_FILE: {error.detail}"
        if fault and fault != self._fault:
            logger.warning("write keys not read", extra={"why": fault, "in_force": len(self._digests)})
        self._fault = fault

    @property
    def _is_blind(self) -> bool:
        return self._file is not None and self._content is None

    def _take(self, content: bytes) -> None:
        try:
            keys = parse_keys(content.decode("utf-8-sig").splitlines())
        except UnicodeDecodeError:
            raise InvalidInput("it is no text") from None
        if not keys:
            raise InvalidInput("it holds no key")
        self._digests = _digests((*self._own, *keys))
        self._content = content
        logger.info("write keys read", extra={"in_force": len(self._digests)})


def _read(file: Path) -> bytes:
    with file.open("rb") as opened:
        content = opened.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise InvalidInput(f"it has more than {MAX_FILE_BYTES} bytes")
    return content


def _digests(keys: Iterable[bytes]) -> tuple[bytes, ...]:
    return tuple(dict.fromkeys(map(_digest, keys)))


def _digest(key: bytes) -> bytes:
    return hashlib.blake2b(key, digest_size=32).digest()
