"""Stored pids: only the very process that was meant is ever signalled."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from cli.stack.identity import Identity, identify, is_alive, send_signal


def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)"])


def test_a_running_process_is_known_again() -> None:
    """Asked twice, the same process has the same identity."""
    me = identify(os.getpid())

    assert me is not None
    assert is_alive(me)


def test_a_reused_pid_is_never_hit() -> None:
    """A process with the stored pid that started at another time is left alone."""
    with sleeper() as process:
        stored = Identity(process.pid, "another start")

        sent = send_signal(stored, signal.SIGKILL)

        assert not sent
        assert not is_alive(stored)
        assert process.poll() is None
        process.kill()


def test_the_very_process_is_hit() -> None:
    """The identity that was stored while it ran leads to the process."""
    with sleeper() as process:
        stored = identify(process.pid)
        assert stored is not None

        sent = send_signal(stored, signal.SIGKILL)

        assert sent
        assert process.wait(10) == -signal.SIGKILL
        assert not is_alive(stored)
        assert not send_signal(stored, signal.SIGKILL)


def test_a_zombie_is_not_alive() -> None:
    """A process that has ended, but whose parent has not asked for it, counts as gone."""
    with sleeper() as process:
        stored = identify(process.pid)
        process.kill()
        # waits for the end without reaping it
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

        assert stored is not None
        assert not is_alive(stored)
