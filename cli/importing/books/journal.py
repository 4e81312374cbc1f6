"""The journal of one import: its progress on disk, so that an interrupted import can continue.

One line of JSON for each answered request, written after the answer, so a line that the journal names was
answered. It is not forced to the disk: it survives the death of the process, not always that of the machine.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import msgspec

from cli.importing.reading.notes import Progress
from shared.errors import BatonError, Conflict


class Journal:
    """An open journal. Raises Conflict if another process has it open, or if it is gone and not `is_new`."""

    def __init__(self, path: Path, *, is_new: bool) -> None:
        self._path = path
        try:
            self._file = os.open(path, os.O_RDWR | os.O_APPEND | (os.O_CREAT if is_new else 0), 0o600)
        except FileNotFoundError:
            raise Conflict(f"the journal {path} is gone: `--again` sends all of the log") from None
        # the kernel releases the lock when the process dies
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._file)
            raise Conflict("another `baton import` is importing this log right now") from None

    def read(self) -> Progress | None:
        """The progress as of the last line, or None if there is none."""
        found: Progress | None = None
        for line in self._path.read_bytes().splitlines():
            try:
                later = msgspec.json.decode(line, type=Progress)
            # cut, because the disk was full or the machine failed
            except msgspec.DecodeError:
                continue
            if found is not None:
                later.settled = found.settled | later.settled
            found = later
        return found

    def append(self, progress: Progress) -> None:
        """Adds a progress, whose `settled` may hold only the streams that have changed."""
        # the line end comes first, so that a line that was cut does not take this one along
        try:
            os.write(self._file, b"\n" + msgspec.json.encode(progress))
        except OSError as error:
            raise BatonError(f"the journal {self._path} cannot be written: {error.strerror}") from None

    def close(self) -> None:
        """Closes the journal; the import can continue later."""
        os.close(self._file)

    def remove(self) -> None:
        """Deletes the journal, because the import is complete."""
        self._path.unlink(missing_ok=True)
