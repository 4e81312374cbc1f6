"""Keeps the lines of a log that were not accepted in a file, so that they can be repaired and imported.

The file has the lines as they were in the log, after the log's header if it has one. Used by
`reading/notes.py` as its `Rejected`.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import IO

from shared.errors import BatonError, InvalidInput

MOST_BYTES = 64 * 1024 * 1024
"""Bound of a file that nobody asked for: with a wrong `--format`, the whole log would be copied."""


class RejectedLines:
    """A file with the lines that were not accepted; it is created with its first line.

    `is_given`: the user chose the file, so it is created at once and holds every line. `continues`: what an
    earlier run wrote stays. Raises InvalidInput when the file cannot be written.
    """

    def __init__(self, path: Path, *, is_given: bool, continues: bool) -> None:
        self.path = path
        self._size = 0
        self.left_out = 0
        self._most_bytes = None if is_given else MOST_BYTES
        self._mode = "ab" if continues else "wb"
        self._file: IO[bytes] | None = None
        if is_given:
            self._open()

    def add(self, raw: bytes | None, header: bytes) -> None:
        """See `notes.Rejected`."""
        file = self._file or self._open()
        if raw is None or (self._most_bytes is not None and self._size + len(raw) > self._most_bytes):
            self.left_out += 1
            return
        # a header of its own, so that the file can be imported as it is
        prefix = header + b"\n" if header and self._size == 0 else b""
        try:
            self._size += file.write(prefix + raw + b"\n")
        except OSError as error:
            raise BatonError(f"{self.path} cannot be written: {error.strerror}") from None

    @property
    def is_used(self) -> bool:
        """Whether the file holds lines, or should hold some that are too long."""
        return self._size > 0 or self.left_out > 0

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()

    def _open(self) -> IO[bytes]:
        try:
            # without a buffer: a line must be here before the journal says that it was counted
            self._file = file = self.path.open(self._mode, buffering=0)
        except OSError as error:
            raise InvalidInput(f"{self.path}: {error.strerror}") from None
        # not 0 if an earlier run has written
        self._size = file.tell()
        return file


def is_same_file(one: Path, other: str) -> bool:
    """Whether both paths lead to one file that exists."""
    with contextlib.suppress(OSError):
        return one.samefile(other)
    return False
