"""Runs a command that dies with the process that started it, however that one ends.

`python leash.py PARENT COMMAND …` asks the kernel (Linux) for a SIGKILL when PARENT is gone, then
becomes the command: same process id, no process in between. Elsewhere it only becomes the command.
It is run as a file, so it imports nothing of Baton's and starts in some 20 ms.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def on_leash(argv: list[str]) -> list[str]:
    """The command line that runs `argv` for as long as this process lives.

    The kernel watches the *thread* that starts it: use one that lives as long as the process.
    """
    return [sys.executable, "-I", "-S", str(Path(__file__).absolute()), str(os.getpid()), *argv]


def _become(parent: int, argv: list[str]) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            sys.exit(f"{argv[0]}: the process that started it is gone")
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        sys.exit(f"{argv[0]} cannot be started: {error.strerror}")


if __name__ == "__main__":
    _become(int(sys.argv[1]), sys.argv[2:])
