"""`baton down` signals only the very processes whose identity the stack stored."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner

from cli.stack.commands.down import down
from cli.stack.processes.identity import Identity, identify, is_alive, send_signal
from cli.stack.processes.state import ProcessState, StackState, load_state, save_state

GONE = Identity(2**22 + 1, "never")
"""No process can have this pid on Linux."""


def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)"])


def store(home: Path, supervisor: Identity, kafka: Identity | None) -> None:
    process = ProcessState(name="kafka", address="a", identity=kafka)
    save_state(home, StackState(supervisor=supervisor, processes=[process]))


def run_down(home: Path) -> str:
    result = CliRunner().invoke(down, ["--home", str(home)])
    assert result.exit_code == 0
    return result.output


def test_a_process_that_outlived_its_supervisor_is_killed(tmp_path: Path) -> None:
    """Even without its supervisor a stack is stopped completely, and its state removed."""
    with sleeper() as process:
        store(tmp_path, GONE, identify(process.pid))

        assert run_down(tmp_path) == "stopped\n"
        assert process.wait(10) == -signal.SIGKILL
        assert load_state(tmp_path) is None


def test_a_process_that_reuses_the_stored_pid_is_not_signalled(tmp_path: Path) -> None:
    """After a reboot the stored pids may belong to other processes."""
    with sleeper() as process:
        stored = Identity(process.pid, "another start")
        store(tmp_path, stored, stored)

        assert run_down(tmp_path) == f"no local stack is running in {tmp_path}\n"
        assert not send_signal(stored, signal.SIGKILL)
        assert process.poll() is None
        assert load_state(tmp_path) is None
        process.kill()


def test_a_zombie_is_not_alive() -> None:
    """A process that has ended counts as gone, even before its parent reaps it."""
    with sleeper() as process:
        identity = identify(process.pid)
        assert identity is not None
        assert is_alive(identity)

        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # waits for the end without reaping

        assert not is_alive(identity)
    assert not send_signal(identity, signal.SIGKILL)
