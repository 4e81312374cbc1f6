"""Reads requests from a connection's bytes: httptools' parser, with a bound on headers and without upgrades.

The parser accepts headers of any size, and after an offer to upgrade it loses the body (Java's HttpClient
offers h2c with every request). Used by `connection.py`.
"""

from __future__ import annotations

import functools
import urllib.parse
from typing import Protocol

import httptools

from shared.server.exchange import Head

MAX_HEADER_BYTES = 32 * 1024
"""For a request line with its headers; browsers send all cookies of a site with a beacon."""
_UPGRADE = (b"upgrade", b"connection", b"http2-settings")


class HeadersTooLarge(Exception):
    """A request's headers, trailers or chunk extensions exceed MAX_HEADER_BYTES."""


class Malformed(Exception):
    """The bytes are not HTTP/1.1."""


class _Stop(Exception):
    """Stops the parser in the middle of what it reads."""


class Events(Protocol):
    """Who reads the requests."""

    def on_head(self, head: Head) -> bool:
        """The headers of a request; False if nothing more is to be read, this request included."""
        ...

    def on_body(self, data: bytes) -> bool:
        """A piece of its body; False if nothing more is to be read."""
        ...

    def on_end(self) -> None:
        """Its body is complete."""
        ...


class RequestReader:
    """Calls `events` as requests arrive.

    `begun` counts requests of which something has arrived; `is_in_headers`: of the last of them, not all
    headers. `_barren` counts bytes in a row without a body or the end of a request among them.
    """

    def __init__(self, events: Events) -> None:
        self._events = events
        self._parser = self._new_parser()
        self.begun = 0
        self.is_in_headers = False
        self._is_between = self._is_stopped = False
        self._barren = 0
        self._target = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._expects_continue = False
        self._declined = b""

    def __repr__(self) -> str:
        return f"<RequestReader of request {self.begun}>"

    def feed(self, data: bytes) -> None:
        """Parses what has arrived. Raises HeadersTooLarge or Malformed; then call it no more."""
        if self._is_stopped:
            return
        self._barren += len(data)
        try:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as offer:
                self._parse_again(offer, data)
        except httptools.HttpParserError as error:
            match error.__context__:
                case _Stop():
                    self._is_stopped = True
                    return
                case HeadersTooLarge():
                    raise HeadersTooLarge from None
            raise Malformed(str(error)) from None
        if self._barren > MAX_HEADER_BYTES and not self._is_between:
            raise HeadersTooLarge

    def close(self) -> None:
        """Breaks the reference cycles with the parser and with `events`."""
        del self._parser, self._events
        self._is_stopped = True

    # the parser's events

    def on_message_begin(self) -> None:
        self.begun += 1
        self.is_in_headers, self._is_between = True, False
        self._target, self._headers, self._expects_continue = b"", [], False

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self._expects_continue = True
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        # _barren may include earlier requests of the same read, so count these headers exactly
        if self._barren > MAX_HEADER_BYTES and self._header_bytes() > MAX_HEADER_BYTES:
            raise HeadersTooLarge
        if self._parser.should_upgrade() and self._decline():
            return
        if not self._events.on_head(self._head()):
            raise _Stop
        self.is_in_headers = False
        self._barren = 0

    def on_chunk_header(self) -> None:
        # headers from now on are trailers, which nobody must see
        self._headers = []

    def on_body(self, body: bytes) -> None:
        self._barren = 0
        if not self._events.on_body(body):
            raise _Stop

    def on_message_complete(self) -> None:
        if not self._declined:
            self._barren = 0
            self._is_between = True
            self._events.on_end()

    def _new_parser(self) -> httptools.HttpRequestParser:
        parser = httptools.HttpRequestParser(self)
        # what a client sends behind its last request is not read, and no reason to refuse that one
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return parser

    def _head(self) -> Head:
        parser, target = self._parser, self._target
        version = parser.get_http_version()
        path, query = _parsed(target)
        return Head(
            parser.get_method().decode(),
            target,
            path,
            query,
            self._headers,
            version,
            is_last=version == "1.0" or not parser.should_keep_alive(),
            expects_continue=self._expects_continue,
        )

    def _header_bytes(self) -> int:
        return len(self._target) + sum(len(name) + len(value) + 4 for name, value in self._headers)

    def _decline(self) -> bool:
        """Declines an offer to upgrade: prepares the headers to be parsed again without it."""
        method = self._parser.get_method()
        if method != b"CONNECT":
            lines = [b"%s %s HTTP/1.1" % (method, self._target)]
            lines += [b"%s: %s" % header for header in self._headers if header[0] not in _UPGRADE]
            if not self._parser.should_keep_alive():
                lines.append(b"connection: close")
            self._declined = b"\r\n".join([*lines, b"", b""])
        return bool(self._declined)

    def _parse_again(self, offer: httptools.HttpParserUpgrade, data: bytes) -> None:
        """Parses the request without the offer, after which the parser would drop a body."""
        offset = offer.args[0]
        while self._declined:
            data, self._declined = self._declined + data[offset:], b""
            self._parser = self._new_parser()
            self.begun -= 1
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as another:
                offset = another.args[0]


@functools.lru_cache(256)
def _parsed(target: bytes) -> tuple[str, bytes]:
    """The decoded path, and the query. Raises what httptools and `decode` raise."""
    # most requests of a service have one of a few targets
    url = httptools.parse_url(target)
    path = url.path.decode("ascii")
    return urllib.parse.unquote(path) if "%" in path else path, url.query or b""
