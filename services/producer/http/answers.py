"""The first lines of an answer: its status, and the headers that every answer of the server has.

Uvicorn renews the standard headers (`date`, `server`) every second; they are rendered once for all answers of
that second. Used by `connection.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

from services.producer.http.exchange import Pairs

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_STATUS = {one.value: b"HTTP/1.1 %d %s\r\n" % (one, one.phrase.encode()) for one in HTTPStatus}


class AnswerHeads:
    """Renders the heads of answers; `standard` returns another list when those headers have changed."""

    def __init__(self, standard: Callable[[], Pairs]) -> None:
        self._standard_headers = standard
        self._rendered_from: object = None
        self._standard = b""

    def __repr__(self) -> str:
        return f"<AnswerHeads with {self._standard!r}>"

    def head(self, status: int, headers: Pairs, *, is_last: bool) -> bytes:
        """The bytes up to the body."""
        standard = self._standard_headers()
        if standard is not self._rendered_from:
            self._rendered_from = standard
            self._standard = rendered(standard)
        end = b"connection: close\r\n\r\n" if is_last else b"\r\n"
        return b"".join((_STATUS[status], self._standard, rendered(headers), end))


def rendered(headers: Pairs) -> bytes:
    """Lines of headers."""
    return b"".join([b"%s: %s\r\n" % pair for pair in headers])
