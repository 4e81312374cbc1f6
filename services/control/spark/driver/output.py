"""Sends the output of the driver and its JVM to the log of the current run.

A running JVM cannot redirect its output. So the output is a pipe, and a thread copies it to the log of the
current run. Used by a driver that executes several runs, one after another.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import sys
import termios
import threading
import time
from pathlib import Path
from typing import Final

CHUNK_BYTES: Final = 64 * 1024
COPIED_S: Final = 1.0
"""How long to wait for the rest of a run's output."""
_POLL_S: Final = 0.005


class RunOutput:
    """Redirects the process's standard output and error until `close`; at first to where they went before."""

    def __init__(self) -> None:
        self._log = os.dup(1)
        self._pipe, end = os.pipe()
        self._put(end)
        os.close(end)
        self._thread = threading.Thread(target=self._copy, name="output", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"<RunOutput to file {self._log}>"

    def switch(self, log: Path) -> None:
        """Sends everything that is written from now on to this file. Raises OSError."""
        opened = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._await_copied()
        os.dup2(opened, self._log, inheritable=False)
        os.close(opened)

    def close(self) -> None:
        """Writes the rest; the process's output then goes to the last log directly."""
        self._await_copied()
        self._put(self._log)

    def _put(self, file: int) -> None:
        """Makes the file the process's standard output and error."""
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os.dup2(file, 1)
        os.dup2(file, 2)

    def _copy(self) -> None:
        while piece := os.read(self._pipe, CHUNK_BYTES):
            with contextlib.suppress(OSError):  # a full disk must not stop the run
                os.write(self._log, piece)

    def _await_copied(self) -> None:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        until_s = time.monotonic() + COPIED_S
        while self._left() and time.monotonic() < until_s:
            time.sleep(_POLL_S)
        time.sleep(_POLL_S)  # the last piece may have been read, but not written

    def _left(self) -> int:
        """Bytes in the pipe."""
        left: int = struct.unpack("i", fcntl.ioctl(self._pipe, termios.FIONREAD, b"\0\0\0\0"))[0]
        return left
