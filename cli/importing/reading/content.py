"""Recognizes a log by its bytes: the digest of all of them, and of its beginnings of given sizes.

Pure. A log that has grown begins with what was imported; one pass finds the longest such beginning.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec


class Content(msgspec.Struct, frozen=True):
    """A log's size in bytes and the digest of them, both unpacked."""

    size: int
    digest: str


class ContentHash:
    """Hashes bytes as they are read; `beginnings` has the content up to each of `sizes` that was reached.

    `ended` is the content up to the last line end.
    """

    def __init__(self, sizes: Iterable[int] = ()) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self._size = 0
        # the next one last
        self._ahead = sorted(set(sizes), reverse=True)
        self.beginnings: set[Content] = set()
        self._ended = (0, self._hash.copy())

    def update(self, block: bytes) -> None:
        """Adds the next bytes."""
        if line_end := block.rfind(b"\n") + 1:
            self._advance(block[:line_end])
            self._ended = (self._size, self._hash.copy())
        self._advance(block[line_end:])

    def _advance(self, block: bytes) -> None:
        while self._ahead and self._ahead[-1] <= self._size + len(block):
            cut = self._ahead.pop() - self._size
            self._add(block[:cut])
            block = block[cut:]
            self.beginnings.add(self.content)
        self._add(block)

    @property
    def content(self) -> Content:
        """The content so far."""
        return Content(self._size, self._hash.hexdigest())

    @property
    def ended(self) -> Content:
        """The content up to the last line end."""
        size, hashed = self._ended
        return Content(size, hashed.hexdigest())

    def _add(self, block: bytes) -> None:
        self._hash.update(block)
        self._size += len(block)
