"""Secrets in a file, one a line: the first is used, and a second stays valid while secrets are rotated.

A file can be replaced while a process runs, and neither `ps` nor a crash report shows it, as they may show
an environment. The file is read again when it has changed; one that has become unusable changes nothing.
"""

from __future__ import annotations

import logging
from pathlib import Path

from shared.errors import InvalidInput

MAX_SECRETS = 2
MAX_BYTES = 16 * 1024
logger = logging.getLogger(__name__)


class SecretFile:
    """The secrets in the file at `path`; `variable` is the setting that names it. Reading it blocks."""

    def __init__(self, path: str, variable: str) -> None:
        self.path = Path(path)
        self._variable = variable
        self._stamp: tuple[int, int, int] | None = None
        self._secrets: tuple[str, ...] = ()
        self._fault = ""

    def __repr__(self) -> str:
        return f"<SecretFile {self.path} of {self._variable}: {len(self._secrets)} in force>"

    def faults(self) -> list[str]:
        """Why the file cannot be used at all, in one sentence; empty if it can."""
        try:
            self.read()
        except InvalidInput as error:
            return [error.detail]
        return []

    def read(self) -> tuple[str, ...]:
        """The secrets, in the order of the lines; the last good ones if the file is unusable.

        Raises InvalidInput if it has never been usable.
        """
        try:
            self._read_again()
            self._fault = ""
        except (OSError, InvalidInput) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            fault = f"{self._variable}={self.path}: {why}"
            if not self._secrets:
                raise InvalidInput(fault) from None
            if fault != self._fault:
                logger.warning("secrets not loaded", extra={"why": fault, "in_force": len(self._secrets)})
            self._fault = fault
        return self._secrets

    def _read_again(self) -> None:
        status = self.path.stat()
        stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
        if stamp == self._stamp:
            return
        secrets = parse_secrets(self.path.read_bytes()[: MAX_BYTES + 1])
        if self._secrets and secrets != self._secrets:
            logger.info("secrets loaded", extra={"variable": self._variable, "in_force": len(secrets)})
        self._stamp, self._secrets = stamp, secrets


def parse_secrets(content: bytes) -> tuple[str, ...]:
    r"""The secrets in a file. Raises InvalidInput.

    >>> parse_secrets(b"new one\nold one\n")
    ('new one', 'old one')
    """
    if len(content) > MAX_BYTES:
        raise InvalidInput(f"the file has more than {MAX_BYTES} bytes")
    try:
        lines = content.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise InvalidInput("the file is not UTF-8 text") from None
    secrets = tuple(line.strip() for line in lines if line.strip())
    if not 1 <= len(secrets) <= MAX_SECRETS:
        raise InvalidInput(f"the file has {len(secrets)} lines with a secret; it needs one, or two")
    return secrets
