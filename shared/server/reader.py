"""Reads requests from a connection's bytes: httptools' parser, with a bound on headers and without upgrades.

The parser accepts headers of any size, any version and any transfer coding, and after an offer to upgrade it
loses the body (Java's HttpClient offers h2c with every request). It also reads everything at once that it is
fed, however many requests that are. So it is fed in pieces, and `connection.py` decides after each of them
whether to read on.
"""

from __future__ import annotations

import functools
import re
import urllib.parse
from typing import Protocol

import httptools

from shared.server.exchange import Head

MAX_HEADER_BYTES = 32 * 1024
"""For a request line with its headers; browsers send all cookies of a site with a beacon."""
PIECE_BYTES = 3 * 1024
"""Of headers and of chunks; the rest of a body of known length is one piece. Most requests fit, and a second
piece costs them 5 %. Not more posts of a fragment fit than are answered in a turn, and of others, which are
refused at once, not more than may wait besides."""
_UPGRADE = (b"upgrade", b"connection", b"http2-settings")
_AUTHORITY = re.compile(rb"[A-Za-z0-9._~!$&'()*+,;=%:\[\]-]*")


class Refused(Exception):
    """What has arrived cannot be read on: the status of the answer, its kind, and a sentence."""

    def __init__(self, status: int, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.status, self.kind, self.detail = status, kind, detail


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
    headers. `unread` has arrived and is not parsed yet; the connection adds to it. `_left` bytes are to come
    of a body of known length; it is not above 0 for others. `_barren` counts bytes in a row without a body or
    the end of a request among them.
    """

    def __init__(self, events: Events) -> None:
        self._events = events
        self._parser = self._new_parser()
        self.begun = 0
        self.is_in_headers = False
        self._is_between = False
        self.unread: bytes | memoryview = b""
        self._left = self._barren = 0
        self._target = b""
        self._headers: list[tuple[bytes, bytes]] = []

    def __repr__(self) -> str:
        return f"<RequestReader of request {self.begun}, {len(self.unread)} bytes unread>"

    def step(self) -> None:
        """Parses a piece of what is unread. Raises Refused; then nothing is left to parse."""
        piece, self.unread = self.unread, b""
        size = self._left if self._left > 0 else PIECE_BYTES
        if len(piece) > size:
            whole = memoryview(piece)
            piece, self.unread = whole[:size], whole[size:]
        self._barren += len(piece)
        try:
            self._parser.feed_data(piece)
        except httptools.HttpParserUpgrade as offer:
            self._decline(piece, offer.args[0])
        except httptools.HttpParserError as error:
            self.stop()
            cause = error.__context__
            if not isinstance(cause, _Stop):
                raise cause if isinstance(cause, Refused) else _malformed(str(error)) from None
        if self._barren > MAX_HEADER_BYTES and not self._is_between:
            self.stop()
            raise _headers_too_large()

    def stop(self) -> None:
        """Drops what is not parsed."""
        self.unread = b""

    def close(self) -> None:
        """Breaks the reference cycles with the parser and with `events`."""
        self.stop()
        del self._parser, self._events

    # the parser's events

    def on_message_begin(self) -> None:
        self.begun += 1
        self.is_in_headers, self._is_between = True, False
        self._target, self._headers = b"", []

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        # _barren may include an earlier request of the same piece, so count these headers exactly
        if self._barren > MAX_HEADER_BYTES and self._header_bytes() > MAX_HEADER_BYTES:
            raise _headers_too_large()
        if self._parser.should_upgrade():
            if self._parser.get_method() == b"CONNECT":
                raise Refused(501, "not-implemented", "nothing is tunnelled here: CONNECT is not implemented")
            return  # see `_decline`
        if not self._events.on_head(self._head()):
            raise _Stop
        self.is_in_headers = False
        self._barren = 0

    def on_chunk_header(self) -> None:
        # headers from now on are trailers, which nobody must see
        self._headers = []

    def on_body(self, body: bytes) -> None:
        self._barren = 0
        self._left -= len(body)
        if not self._events.on_body(body):
            raise _Stop

    def on_message_complete(self) -> None:
        if self.is_in_headers:  # see `_decline`
            return
        self._barren = self._left = 0
        self._is_between = True
        self._events.on_end()

    def _new_parser(self) -> httptools.HttpRequestParser:
        parser = httptools.HttpRequestParser(self)
        # what a client sends behind its last request is not read, and no reason to refuse that one
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return parser

    def _decline(self, piece: bytes | memoryview, end: int) -> None:
        """Has a request parsed again without its offer to upgrade, after which the parser would drop a body.

        Its headers end there in the piece.
        """
        version = self._parser.get_http_version().encode()
        lines = [b"%s %s HTTP/%s" % (self._parser.get_method(), self._target, version)]
        lines += [b"%s: %s" % header for header in self._headers if header[0] not in _UPGRADE]
        if not self._parser.should_keep_alive():
            lines.append(b"connection: close")
        self.unread = b"".join((b"\r\n".join([*lines, b"", b""]), piece[end:], self.unread))
        self._parser = self._new_parser()
        self.begun -= 1
        self._barren = 0

    def _head(self) -> Head:
        parser, target = self._parser, self._target
        headers = self._headers
        named = dict(headers)
        if len(named) < len(headers):
            named = joined(headers)
        stays = parser.should_keep_alive()
        # only HTTP/1.1 stays without a word about it, and to ask the parser takes 2 % of a request
        is_told = b"connection" in named or b"proxy-connection" in named
        version = "1.1" if stays and not is_told else parser.get_http_version()
        if version not in ("1.1", "1.0"):
            raise Refused(505, "version-not-supported", f"HTTP/{version} is not spoken here, but HTTP/1.1")
        host = named.get(b"host")
        if not (version == "1.0" if host is None else _is_authority(host)):
            raise _malformed("a request has one `Host`")
        if b"transfer-encoding" in named:
            _check_codings(named[b"transfer-encoding"], version)
        self._left = length = int(named.get(b"content-length", 0))
        path, query, authority = _parsed(target)
        if authority:  # RFC 9112, 3.2.2: it counts instead of `Host`
            headers = [(b"host", authority), *(pair for pair in headers if pair[0] != b"host")]
            named[b"host"] = authority
        return Head(
            parser.get_method().decode(),
            target,
            path,
            query,
            headers,
            named,
            version,
            length,
            version == "1.0" or not stays,
            # a client of HTTP/1.0 would take the 100 for the answer
            b"expect" in named and named[b"expect"].lower() == b"100-continue" and version == "1.1",
        )

    def _header_bytes(self) -> int:
        return len(self._target) + sum(len(name) + len(value) + 4 for name, value in self._headers)


def _malformed(why: str) -> Refused:
    return Refused(400, "malformed-request", f"the request is not valid HTTP/1.1: {why}")


def _headers_too_large() -> Refused:
    """Of headers, trailers or chunk extensions."""
    detail = f"a request's headers may have at most {MAX_HEADER_BYTES} bytes"
    return Refused(431, "headers-too-large", detail)


def joined(headers: list[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """The headers by name; the values of a repeated one form a list (RFC 9110, 5.3), but never a `Host`."""
    named: dict[bytes, bytes] = {}
    for name, value in headers:
        named[name] = named[name] + b", " + value if name in named else value
    return named


@functools.lru_cache(256)
def _check_codings(codings: bytes, version: str) -> None:
    """Raises Refused unless a body is chunked and nothing else (RFC 9112, 6.1 and 6.3)."""
    *others, last = [coding.strip(b" \t").lower() for coding in codings.split(b",")]
    if version == "1.0" or last != b"chunked" or last in others:
        raise _malformed("only `chunked`, once and in the end, says where a body ends")
    if others:
        raise Refused(501, "not-implemented", "`chunked` is the only transfer coding that is implemented")


@functools.lru_cache(256)
def _is_authority(host: bytes) -> bool:
    return _AUTHORITY.fullmatch(host) is not None


@functools.lru_cache(256)
def _parsed(target: bytes) -> tuple[str, bytes, bytes]:
    """The decoded path, the query, and the authority, which only absolute targets have. Raises Refused."""
    # most requests of a service have one of a few targets
    if target == b"*":
        return "*", b"", b""
    try:
        url = httptools.parse_url(target)
        path = (url.path or b"/").decode("ascii")
    except (httptools.HttpParserInvalidURLError, UnicodeDecodeError):
        raise _malformed("its target is not a path") from None
    authority = b"" if url.host is None else target.split(b"/", 3)[2].rpartition(b"@")[2]
    return urllib.parse.unquote(path) if "%" in path else path, url.query or b"", authority
