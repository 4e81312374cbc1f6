"""Runs a command that dies with the process that started it, even if that one is killed.

`python leash.py PARENT COMMAND …` asks the kernel (Linux) to send SIGKILL when PARENT dies, then executes the
command in its place: same process id, no process in between. On other systems it only executes the command.
It runs as a file, imports nothing of Baton and therefore starts in about 20 ms.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def on_leash(argv: list[str]) -> list[str]:
    """The command line that runs `argv` at most as long as this process lives.

    The kernel watches the *thread* that starts the command, so start it from one that lives as long.
    """
    return [sys.executable, "-I", "-S", str(Path(__file__).absolute()), str(os.getpid()), *argv]


def _become(parent: int, argv: list[str]) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            sys.exit(f"{argv[0]}: its parent process is gone")
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        sys.exit(f"{argv[0]} cannot be started: {error.strerror}")


if __name__ == "__main__":
    _become(int(sys.argv[1]), sys.argv[2:])
