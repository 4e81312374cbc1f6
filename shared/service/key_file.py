"""Keys in a file, one a line: how a process reads them, rereads them while it runs, and compares them.

Used by the producer for its write keys, by the queue for its keys, and by control for its tokens. What a line
allows is theirs. The file is reread every second; if it is unusable, the last good keys stay in force. No
error, log line or `repr` contains a key.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from shared.errors import InvalidInput

REREAD_S = 1.0
MAX_FILE_BYTES = 1024 * 1024
"""A larger file cannot hold keys: the setting must name the wrong file."""
MAX_KEY_BYTES = 256
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""The name of a key, which may be shown."""
logger = logging.getLogger(__name__)

Entries = Sequence[tuple[int, str]]
"""Lines with their numbers, from 1, without blank lines and comments."""


class Keyed(Protocol):
    """Anything that has a key; `digest` is `digest_of` it."""

    @property
    def digest(self) -> bytes: ...


K = TypeVar("K", bound=Keyed)


def digest_of(key: bytes) -> bytes:
    """What is compared instead of the key."""
    return hashlib.blake2b(key, digest_size=32).digest()


def find_key(given: bytes, known: Iterable[K]) -> K | None:
    """The one whose key is `given`, if any, in a time that reveals nothing about the keys."""
    # compare digests, because compare_digest's time reveals whether lengths agree; and always compare all
    digest = digest_of(given)
    found = None
    for one in known:
        if hmac.compare_digest(digest, one.digest):
            found = one
    return found


def entries_of(lines: Iterable[str]) -> Entries:
    """The lines that hold a key.

    >>> entries_of(["# the old one", " k1 ", "", "k2 mark"])
    [(2, 'k1'), (4, 'k2 mark')]
    """
    stripped = ((number, line.strip()) for number, line in enumerate(lines, 1))
    return [(number, line) for number, line in stripped if line and not line.startswith("#")]


def check_key(key: str, what: str) -> None:
    """Raises InvalidInput, which says `what` and not the key, if no header could carry it."""
    if not (key.isascii() and key.isprintable()) or "," in key:
        raise InvalidInput(f"{what} must be visible ASCII without blanks and commas")
    if len(key) > MAX_KEY_BYTES:
        raise InvalidInput(f"{what} has more than {MAX_KEY_BYTES} bytes")


class KeyFile:
    """The file at `path`, which the setting `variable` names; `run()` rereads it every second.

    `load` puts its entries in force, or raises InvalidInput and changes nothing. It returns counts for the
    log.
    """

    def __init__(self, path: Path, variable: str, load: Callable[[Entries], Mapping[str, int]]) -> None:
        self._path = path
        self._variable = variable
        self._load = load
        self._content: bytes | None = None
        self._counts: Mapping[str, int] = {}
        self._fault = f"{variable} has not been read yet"

    def __repr__(self) -> str:
        return f"<KeyFile of {self._variable}: {self._fault or 'in force'}>"

    @property
    def is_read(self) -> bool:
        """Whether its keys, or those that it had before, are in force."""
        return self._content is not None

    def complaint(self) -> str:
        """Why valid keys may be rejected; empty once the file has been read."""
        return "" if self.is_read else self._fault

    def remarks(self) -> list[str]:
        """What is wrong with the file, while the last good keys are in force."""
        return [self._fault] if self.is_read and self._fault else []

    async def run(self) -> None:
        """Rereads the file every second until cancelled."""
        while True:
            await asyncio.sleep(REREAD_S)
            await self.step()

    async def step(self) -> None:
        """Reads the file once and puts its keys in force; an unusable file changes nothing."""
        try:
            # in a thread: the file may be on a network file system that hangs
            content = await asyncio.to_thread(_read, self._path)
            if content != self._content:
                self._counts = self._load(_entries_in(content))
                self._content = content
                logger.info("keys loaded", extra={"variable": self._variable, **self._counts})
            fault = ""
        except OSError as error:
            fault = f"{self._variable}: {error.strerror}"
        except InvalidInput as error:
            fault = f"{self._variable}: {error.detail}"
        if fault and fault != self._fault:
            logger.warning("keys not loaded", extra={"why": fault, **self._counts})
        self._fault = fault


class OptionalKeyFile:
    """Keys that may be in a file: base of what puts them in force. Without one, there is nothing to read."""

    def __init__(
        self, path: Path | None, variable: str, load: Callable[[Entries], Mapping[str, int]]
    ) -> None:
        self._file = None if path is None else KeyFile(path, variable, load)

    def complaint(self) -> str:
        """Why valid keys may be rejected; empty once the file has been read."""
        return self._file.complaint() if self._file else ""

    def remarks(self) -> list[str]:
        """What is wrong with the file, while the last good keys are in force."""
        return self._file.remarks() if self._file else []

    async def run(self) -> None:
        """Rereads the file every second until cancelled."""
        if self._file:
            await self._file.run()

    async def step(self) -> None:
        """Reads the file once and puts its keys in force; an unusable file changes nothing."""
        if self._file:
            await self._file.step()


def _read(file: Path) -> bytes:
    with file.open("rb") as opened:
        content = opened.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise InvalidInput(f"the file has more than {MAX_FILE_BYTES} bytes")
    return content


def _entries_in(content: bytes) -> Entries:
    try:
        entries = entries_of(content.decode("utf-8-sig").splitlines())
    except UnicodeDecodeError:
        raise InvalidInput("the file is not UTF-8 text") from None
    if not entries:
        raise InvalidInput("the file contains no key")
    return entries
