"""TLS of Baton's own HTTP: the files, and contexts whose new connections use the files as they are now.

A server shows its certificate and may demand one of its clients; a client checks the server's certificate and
name, and shows its own if it has one. Files that have become unusable change nothing. docs/security.md has
the steps of a rotation. Used by every service and by the command line.
"""

from __future__ import annotations

import contextlib
import logging
import os
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from shared.errors import InvalidInput
from shared.service.settings import variable_for

QUIET_S = 10.0
"""A stranger can fail any number of handshakes: each reason is logged so often at most."""
CLOSED = "it closed the connection without an answer; if it refuses our certificate, its log says so"
"""For a caller that learns no more: a server checks a client's certificate after the request was sent."""
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """PEM files; an empty name means that there is none.

    `certificate`, `key`: our own. `ca`: the authorities of the servers that we call. `client_ca`: those of
    the clients that call us, which then need a certificate.
    """

    certificate: str = ""
    key: str = ""
    ca: str = ""
    client_ca: str = ""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """What the variables `BATON_TLS_…` say."""
        names = ("certificate", "key", "ca", "client_ca")
        return cls(**{name: environment.get(_variable(name), "") for name in names})

    @property
    def is_serving(self) -> bool:
        """Whether our listeners speak TLS."""
        return bool(self.certificate)

    @property
    def stamp(self) -> tuple[tuple[int, int, int], ...]:
        """Another value whenever a file has changed. Raises OSError."""
        found = [os.stat(path) for path in (self.certificate, self.key, self.ca, self.client_ca) if path]
        return tuple((status.st_mtime_ns, status.st_size, status.st_ino) for status in found)

    def faults(self) -> list[str]:
        """Why nothing can be served or called with these files; empty if it can."""
        if self.key and not self.certificate:
            return [f"{_variable('key')} needs {_variable('certificate')}"]
        if self.client_ca and not self.certificate:
            return [f"{_variable('client_ca')} needs {_variable('certificate')}"]
        if self == TlsFiles():
            return []
        try:
            _client(self)
            if self.is_serving:
                _server(self)
        except InvalidInput as error:
            return [error.detail]
        return []


def server_context(files: TlsFiles) -> ssl.SSLContext:
    """A context for listeners. Raises InvalidInput if the files are unusable."""
    return RenewedContext(ssl.PROTOCOL_TLS_SERVER, files, _server)


def client_context(files: TlsFiles) -> ssl.SSLContext:
    """A context for calls. Raises InvalidInput if the files are unusable."""
    return RenewedContext(ssl.PROTOCOL_TLS_CLIENT, files, _client)


def tls_fault(error: BaseException) -> str:
    """What TLS says about a call that has failed; empty if the reason is another one.

    HTTP clients wrap the error, some without its text.
    """
    found: BaseException | None = error
    while found is not None and not isinstance(found, ssl.SSLError):
        found = found.__cause__ or found.__context__
    if isinstance(found, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {_words_of(found)}"
    return f"TLS fails: {_words_of(found)}" if found is not None else ""


class RenewedContext(ssl.SSLContext):
    """A context that begins each connection with the present content of its files.

    Event loops and HTTP clients begin one by `wrap_bio`, so a subclass may do this (truststore's does, too);
    the rest of this context has no effect.
    """

    def __new__(cls, protocol: int, files: TlsFiles, build: Callable[[TlsFiles], ssl.SSLContext]) -> Self:
        context = super().__new__(cls, protocol)
        context._files, context._build = files, build
        context._stamp, context._current = (), build(files)
        with contextlib.suppress(OSError):
            context._stamp = files.stamp
        return context

    _files: TlsFiles
    _build: Callable[[TlsFiles], ssl.SSLContext]
    _stamp: tuple[tuple[int, int, int], ...]
    _current: ssl.SSLContext

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        """Begins a connection."""
        self._renew()
        return self._current.wrap_bio(*arguments, **options)

    def _renew(self) -> None:
        try:
            stamp = self._files.stamp
            if stamp == self._stamp:
                return
            # also if they are unusable: each change is looked at once
            self._stamp = stamp
            self._current = self._build(self._files)
            logger.info("certificates loaded", extra={"certificate": self._files.certificate})
        except (OSError, InvalidInput) as error:
            if _is_news(str(error)):
                logger.warning("certificates not loaded", extra={"why": str(error)})


class _ServedConnection(ssl.SSLObject):
    """The server's side of a connection; says why a handshake failed, which no event loop does."""

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except ssl.SSLWantReadError:
            raise
        except ssl.SSLError as error:
            if _is_news(_words_of(error)):
                logger.warning("handshake failed", extra={"why": _words_of(error)})
            raise


def _server(files: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sslobject_class = _ServedConnection
    _load_own(context, files)
    if files.client_ca:
        with _blaming("client_ca", files.client_ca):
            context.load_verify_locations(files.client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _client(files: TlsFiles) -> ssl.SSLContext:
    with _blaming("ca", files.ca):
        context = ssl.create_default_context(cafile=files.ca or None)
    if files.certificate:
        _load_own(context, files)
    return context


def _load_own(context: ssl.SSLContext, files: TlsFiles) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    with _blaming("certificate", files.certificate):
        # without a password: OpenSSL would ask for it at the terminal
        context.load_cert_chain(files.certificate, files.key or None, password=b"")


def _variable(name: str) -> str:
    return variable_for(f"tls_{name}_file")


@contextlib.contextmanager
def _blaming(name: str, path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:  # ssl.SSLError is one
        why = getattr(error, "reason", None) or error.strerror or str(error)
        raise InvalidInput(f"{_variable(name)}={path}: {why}") from None


def _words_of(error: ssl.SSLError) -> str:
    """The reason without the line of OpenSSL's source."""
    return getattr(error, "verify_message", "") or error.reason or str(error)


_logged_at_s: dict[str, float] = {}


def _is_news(why: str) -> bool:
    """Whether this has not been logged in the last seconds."""
    now_s = time.monotonic()
    if now_s - _logged_at_s.get(why, float("-inf")) < QUIET_S:
        return False
    _logged_at_s[why] = now_s
    return True
