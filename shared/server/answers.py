"""The first lines of an answer: its status, and the headers that every answer of the server has.

Uvicorn renews the standard headers (`date`, `server`) every second. Within a second most answers begin alike,
so they are rendered once. Used by `connection.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

Pairs = tuple[tuple[bytes, bytes], ...]
"""Headers in ASGI's form."""
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
MAX_RENDERED = 1_000
"""Heads that are kept; above it they are rendered again."""
_STATUS = {one.value: b"HTTP/1.1 %d %s\r\n" % (one, one.phrase.encode()) for one in HTTPStatus}


class AnswerHeads:
    """Renders the heads of answers; `standard` returns another list when those headers have changed."""

    def __init__(self, standard: Callable[[], list[tuple[bytes, bytes]]]) -> None:
        self._standard = standard
        self._rendered_with: object = None
        self._rendered: dict[tuple[int, Pairs, bool], bytes] = {}

    def __repr__(self) -> str:
        return f"<AnswerHeads: {len(self._rendered)} rendered>"

    def head(self, status: int, headers: Pairs, *, is_last: bool) -> bytes:
        """The bytes up to the body."""
        standard = self._standard()
        if standard is not self._rendered_with or len(self._rendered) > MAX_RENDERED:
            self._rendered_with = standard
            self._rendered.clear()
        key = status, headers, is_last
        found = self._rendered.get(key)
        if found is None:
            lines = [b"%s: %s\r\n" % pair for pair in (*standard, *headers)]
            end = b"connection: close\r\n\r\n" if is_last else b"\r\n"
            found = self._rendered[key] = b"".join((_STATUS[status], *lines, end))
        return found
